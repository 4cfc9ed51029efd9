"""Which replies a session may ask for again."""

import pytest

from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.sessions.replies import REFUSAL_BYTES, ReplyWindow


def digest(seq: int) -> bytes:
    return b"digest %d" % seq


def window(batches: int = 4, byte_limit: int = 10_000, recorded: int = 0, size: int = 10) -> ReplyWindow:
    replies = ReplyWindow(batches, byte_limit)
    for seq in range(1, recorded + 1):
        replies.record(digest(seq), b"%d" % seq * size)
    return replies


def refused(replies: ReplyWindow, seq: int, asked: bytes) -> Reason:
    with pytest.raises(Refusal) as caught:
        replies.find(seq, asked)
    assert caught.value.facts == {"next_seq": replies.next_seq}
    return caught.value.reason


def test_the_next_seq_has_no_reply_yet() -> None:
    assert window().find(1, b"") is None
    assert window(recorded=3).find(4, b"") is None


def test_a_recorded_reply_is_found_by_its_seq_and_digest() -> None:
    replies = window(recorded=3)
    assert replies.find(2, digest(2)) == b"2" * 10
    assert refused(replies, 2, digest(3)) is Reason.SEQ_REUSED


@pytest.mark.parametrize("seq", [-1, 0, 5, 2**64])
def test_a_seq_out_of_line_is_refused(seq: int) -> None:
    assert refused(window(recorded=3), seq, b"") is Reason.BAD_FIELD


def test_acknowledged_replies_are_forgotten() -> None:
    replies = window(recorded=3)
    replies.acknowledge(2)
    assert refused(replies, 2, digest(2)) is Reason.SEQ_EXPIRED
    assert replies.find(3, digest(3))
    replies.acknowledge(99)
    assert refused(replies, 3, digest(3)) is Reason.SEQ_EXPIRED


def test_the_oldest_leave_when_there_are_too_many() -> None:
    replies = window(batches=4, recorded=6)
    assert refused(replies, 2, digest(2)) is Reason.SEQ_EXPIRED
    assert replies.find(3, digest(3))


def test_the_oldest_leave_when_they_are_too_large_but_the_newest_stays() -> None:
    replies = window(byte_limit=25, recorded=3, size=10)
    assert refused(replies, 1, digest(1)) is Reason.SEQ_EXPIRED
    assert replies.find(2, digest(2))
    replies.record(b"large", bytes(1_000))
    assert replies.find(4, b"large")
    assert refused(replies, 3, digest(3)) is Reason.SEQ_EXPIRED


def test_refusals_are_kept_and_counted() -> None:
    replies = ReplyWindow(1_000, 2 * REFUSAL_BYTES)
    refusal = Refusal(Reason.NO_LEASE, "no such lease")
    for seq in range(1, 4):
        replies.record(digest(seq), refusal)
    assert replies.find(3, digest(3)) is refusal
    assert refused(replies, 1, digest(1)) is Reason.SEQ_EXPIRED
