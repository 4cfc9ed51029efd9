"""A session's conversation: seqs, acknowledgements, step boundaries, resends. Replies are made by hand."""

from concurrent.futures import Future

import numpy as np
import pytest

from radixd.client.errors import (
    BadField,
    DependencyFailed,
    LimitExceeded,
    NoLease,
    NoPages,
    RadixError,
    StaleEpoch,
    Unreachable,
)
from radixd.client.lease import LeaseStatus
from radixd.v1 import cache_pb2
from tests.unit.client.refusals import refusal
from tests.unit.client.wire import OPENED, Wire, ids, patch


@pytest.fixture
def wire():
    return Wire()


def test_each_batch_names_the_session_its_seq_and_its_steps(wire):
    wire.send()
    wire.exchange.step(3, 1)
    wire.send()
    first, second = wire.call(0), wire.call(1)
    assert (first.session_id, first.secret, first.epoch) == (3, b"s" * 16, 99)
    assert [(call.seq, call.ack, call.launched, call.completed) for call in (first, second)] == [
        (1, 0, 0, 0),
        (2, 0, 3, 1),
    ]


def test_a_reply_settles_its_operations_and_is_acknowledged_by_the_next_batch(wire):
    batch = wire.batch()
    hit, full = batch.match([1, 2, 3]), batch.acquire([1, 2, 3])
    future = wire.send(batch)
    with pytest.raises(RuntimeError, match="not answered yet"):
        hit.result()
    wire.answer(1, {"match": cache_pb2.MatchResult(device_tokens=2)}, {"status": refusal("NO_PAGES", free="1")})
    assert hit.result().device_tokens == 2
    assert isinstance(full.error, NoPages)
    with pytest.raises(NoPages):
        full.result()
    assert future.result().seq == 1
    wire.send()
    assert wire.call().ack == 1


@pytest.mark.parametrize(("launched", "completed"), [(0, 0), (2, None), (None, 0), (None, 4)])
def test_steps_that_fall_or_pass_are_refused_and_change_nothing(wire, launched, completed):
    wire.exchange.step(3, 1)
    with pytest.raises(ValueError, match="steps: "):
        wire.exchange.step(launched, completed)
    assert (wire.exchange.launched, wire.exchange.completed) == (3, 1)


def test_what_is_unanswered_is_sent_again_as_the_same_bytes(wire):
    for _ in range(3):
        wire.send()
    wire.exchange.stream_ended(Unreachable("gone"))
    wire.answer(1)
    assert wire.exchange.unanswered() == wire.sent[1:]


def test_a_reply_that_was_taken_already_is_let_go(wire):
    wire.send()
    future = wire.send()
    wire.answer(1)
    wire.answer(1)
    assert not future.done()
    wire.answer(2)
    assert future.done()


def test_a_patch_with_a_step_in_flight_is_neither_applied_nor_acknowledged_before_the_boundary(wire):
    lease = wire.lease()
    wire.exchange.step(1, 0)
    batch = wire.batch()
    batch.insert(lease, 8)
    wire.send(batch)
    wire.answer(2, {"insert": cache_pb2.InsertResult(published=8, patches=[patch(1, 9)])})
    wire.send()
    assert lease.pages.tolist() == [1, 2]
    assert wire.call().ack == 1
    wire.answer(3)
    wire.send()
    assert wire.call().ack == 1
    wire.exchange.step(2, 1)
    assert lease.pages.tolist() == [1, 9]
    wire.send()
    call = wire.call()
    assert (call.ack, call.launched) == (3, 2)


def test_an_idle_report_of_the_clients_own_is_no_boundary(wire):
    lease = wire.lease()
    batch = wire.batch()
    batch.insert(lease, 8)
    wire.send(batch)
    wire.answer(2, {"insert": cache_pb2.InsertResult(published=8, patches=[patch(0, 9)])})
    wire.sent.append(wire.exchange.submit(wire.batch(), Future()))
    assert lease.pages.tolist() == [1, 2]
    assert wire.call().ack == 1
    wire.send()
    assert lease.pages.tolist() == [9, 2]
    assert wire.call().ack == 2


def test_publications_and_their_patches_reach_the_lease(wire):
    lease = wire.lease()
    wire.exchange.step(1, 0)
    batch = wire.batch()
    batch.insert(lease, 8)
    wire.send(batch)
    wire.answer(2, {"insert": cache_pb2.InsertResult(published=0, pending=True)})
    future = wire.send()
    told = [
        cache_pb2.Publication(lease_id=5, published=8, patches=[patch(0, 7)]),
        cache_pb2.Publication(lease_id=404, published=4),
    ]
    wire.answer(3, publications=told)
    assert lease.published == 8
    assert [item.lease_id for item in future.result().publications] == [5, 404]
    wire.exchange.step(2, 1)
    assert lease.pages.tolist() == [7, 2]


def test_an_insert_waits_for_the_last_launched_step_unless_told_otherwise(wire):
    lease = wire.lease()
    wire.exchange.step(6, 4)
    batch = wire.batch()
    batch.insert(lease, 4)
    batch.insert(lease, 8, after_step=5)
    batch.release(lease)
    wire.send(batch)
    inserts = [operation.insert.after_step for operation in cache_pb2.Batch.FromString(wire.sent[-1]).operations]
    assert inserts[:2] == [6, 5]
    assert batch.message.operations[2].release.after_step == 6


def test_operations_refer_to_the_lease_that_their_batch_opens(wire):
    batch = wire.batch()
    opened = batch.acquire(range(4))
    grown = batch.allocate(opened, 8, tokens=[7])
    batch.group(2, opened, grown)
    batch.release(opened)
    wire.send(batch)
    operations = cache_pb2.Batch.FromString(wire.sent[-1]).operations
    assert [operation.group for operation in operations] == [2, 2, 0]
    assert operations[1].allocate.lease.WhichOneof("lease") == "opened_by"
    told = cache_pb2.AcquireResult(lease_id=8, pages=np.array([4], "<i4").tobytes())
    more = cache_pb2.AllocateResult(allocated=8, pages=np.array([6], "<i4").tobytes())
    wire.answer(1, {"acquire": told}, {"allocate": more}, {"release": cache_pb2.ReleaseResult(freed_pages=2)})
    assert grown.result().tolist() == [6]
    assert opened.result().known == 5
    assert opened.result().status is LeaseStatus.RELEASED


def test_a_lease_that_was_not_opened_takes_its_followers_with_it(wire):
    batch = wire.batch()
    opened = batch.acquire(range(4))
    grown = batch.allocate(opened, 8)
    wire.send(batch)
    wire.answer(1, {"status": refusal("NO_PAGES")}, {"status": refusal("DEPENDENCY_FAILED")})
    assert isinstance(opened.error, NoPages)
    assert isinstance(grown.error, DependencyFailed)


def test_an_unanswered_lease_of_another_batch_cannot_be_named(wire):
    batch = wire.batch()
    opened = batch.acquire(range(4))
    wire.send(batch)
    with pytest.raises(ValueError, match="opened by another Batch"):
        wire.batch().allocate(opened, 8)


def test_a_lease_of_another_session_cannot_be_named(wire):
    lease = Wire().lease()
    with pytest.raises(ValueError, match="belongs to another session"):
        wire.batch().release(lease)


def test_arguments_that_are_refused_leave_the_batch_as_it_was(wire):
    batch = wire.batch()
    lease = wire.lease()
    for bad in (
        lambda: batch.match([-1]),
        lambda: batch.acquire([2**32]),
        lambda: batch.allocate(lease, 8, tokens=b"123"),
        lambda: batch.move(lease, [1], [-1]),
    ):
        with pytest.raises(ValueError):  # noqa: PT011  the messages are test_tokens' business
            bad()
    assert len(batch) == len(batch.message.operations) == 0


def test_a_batch_is_sent_once(wire):
    batch = wire.batch()
    wire.send(batch)
    with pytest.raises(RuntimeError, match="sent already"):
        wire.send(batch)


@pytest.mark.parametrize(
    ("limit", "fill"),
    [
        ("operations", lambda batch: [batch.match([1]) for _ in range(9)]),
        ("message_bytes", lambda batch: batch.match(np.zeros(3_000, np.uint32))),
    ],
)
def test_a_batch_above_a_limit_is_refused_before_it_takes_a_seq(wire, limit, fill):
    batch = wire.batch()
    fill(batch)
    with pytest.raises(LimitExceeded) as refused:
        wire.send(batch)
    assert refused.value.field == limit
    assert refused.value.facts["limit"] == str(getattr(OPENED.limits, limit))
    wire.send()
    assert wire.call().seq == 1


def test_no_more_batches_are_in_flight_than_the_daemon_keeps_replies_for(wire):
    for _ in range(4):
        wire.send()
    with pytest.raises(LimitExceeded):
        wire.send()
    wire.answer(1)
    wire.send()


def test_a_refused_stream_fails_what_was_unanswered_and_gives_the_seqs_back(wire):
    wire.send()
    batch = wire.batch()
    hit = batch.match([1])
    refused, behind = wire.send(batch), wire.send()
    wire.answer(1)
    wire.exchange.stream_ended(BadField("no", field="call.seq"))
    for future in (refused, behind):
        assert isinstance(future.exception(), BadField)
    assert isinstance(hit.error, BadField)
    wire.send()
    assert wire.call().seq == 2


def test_despair_tells_those_who_wait_and_keeps_the_batch(wire):
    batch = wire.batch()
    hit = batch.match([1])
    future = wire.send(batch)
    wire.exchange.despair(Unreachable("gone"))
    assert isinstance(future.exception(), Unreachable)
    assert not hit.done
    with pytest.raises(Unreachable):
        wire.send()
    assert wire.exchange.unanswered() == wire.sent
    wire.answer(1, {"match": cache_pb2.MatchResult(device_tokens=4)})
    assert hit.result().device_tokens == 4
    wire.send()


def opened(lease_id, *pages):
    """An Acquire's answer."""
    return {"acquire": cache_pb2.AcquireResult(lease_id=lease_id, pages=ids(*pages))}


def releases(data):
    """The leases that a Batch releases, and nothing else in it."""
    batch = cache_pb2.Batch.FromString(data)
    assert all(operation.WhichOneof("verb") == "release" for operation in batch.operations)
    return [operation.release.lease.id for operation in batch.operations]


def test_what_an_abandoned_batch_opens_is_released_when_the_reply_comes(wire):
    batch = wire.batch()
    batch.acquire(range(4))
    batch.wait(range(4))
    batch.release(batch.acquire(range(4)))
    batch.acquire(range(4))
    other = wire.batch()
    kept = other.acquire(range(4))
    wire.send(other)
    wire.send(batch)
    wire.exchange.abandon(batch)
    assert wire.exchange.give_back() is None
    answers = opened(5, 1), opened(6), opened(7, 2), {"release": cache_pb2.ReleaseResult()}
    wire.answer(1, opened(4, 9))
    wire.answer(2, *answers, {"status": refusal("NO_PAGES")})
    data = wire.exchange.give_back()
    assert releases(data) == [5, 6]
    assert wire.exchange.unanswered() == [data]
    wire.answer(3, *[{"release": cache_pb2.ReleaseResult()}] * 2)
    assert wire.exchange.give_back() is None
    assert kept.result().status is LeaseStatus.ACTIVE


def test_what_an_abandoned_batch_has_opened_already_is_released_at_once(wire):
    batch = wire.batch()
    lease = batch.acquire(range(4))
    wire.send(batch)
    wire.answer(1, opened(5, 1))
    for _ in range(2):
        wire.exchange.abandon(batch)
    assert releases(wire.exchange.give_back()) == [5]
    wire.answer(2, {"release": cache_pb2.ReleaseResult()})
    assert lease.result().status is LeaseStatus.RELEASED


def test_a_refused_release_of_abandoned_leases_is_sent_again_but_not_a_kept_one(wire):
    batch = wire.batch()
    batch.acquire(range(4))
    wire.send(batch)
    wire.exchange.abandon(batch)
    wire.answer(1, opened(5, 1))
    wire.exchange.give_back()
    wire.exchange.despair(Unreachable("gone"))
    assert wire.exchange.give_back() is None
    wire.exchange.stream_ended(BadField("no", field="call.seq"))
    assert releases(wire.exchange.give_back()) == [5]


def test_abandoned_leases_wait_for_room_and_end_with_the_session(wire):
    batch = wire.batch()
    batch.acquire(range(4))
    wire.send(batch)
    wire.answer(1, opened(5, 1))
    for _ in range(4):
        wire.send()
    wire.exchange.abandon(batch)
    assert wire.exchange.give_back() is None
    wire.answer(2)
    assert releases(wire.exchange.give_back()) == [5]
    wire.exchange.end(StaleEpoch("restarted"))
    assert wire.exchange.give_back() is None


def test_the_end_voids_leases_and_whoever_waits(wire):
    lease = wire.lease()
    batch = wire.batch()
    hit = batch.match([1])
    future = wire.send(batch)
    wire.exchange.end(StaleEpoch("restarted"))
    assert isinstance(future.exception(), StaleEpoch)
    assert isinstance(hit.error, StaleEpoch)
    for use in (lambda: lease.pages, lambda: wire.batch().release(lease), wire.send):
        with pytest.raises(StaleEpoch):
            use()
    assert wire.exchange.unanswered() == []


def test_a_copy_is_in_motion_until_a_reply_says_otherwise(wire):
    lease = wire.lease()
    batch = wire.batch()
    copy = batch.move(lease, [4, 5], [8, 9])
    wire.send(batch)
    wire.answer(2, {"move": cache_pb2.MoveResult(copy_id=17)})
    assert lease.copying
    assert copy.result() == 17
    future = wire.send()
    wire.answer(3, finished_copies=[cache_pb2.FinishedCopy(copy_id=17, status=refusal("BUG"))])
    assert not lease.copying
    assert future.result().finished_copies[0].error.reason == "BUG"


def test_a_released_lease_can_no_longer_be_named(wire):
    lease = wire.lease()
    batch = wire.batch()
    batch.release(lease)
    wire.send(batch)
    wire.answer(2, {"release": cache_pb2.ReleaseResult()})
    with pytest.raises(NoLease):
        wire.batch().allocate(lease, 8)


def test_a_child_process_may_not_speak_for_its_parent(wire, monkeypatch):
    monkeypatch.setattr("os.getpid", lambda: -1)
    with pytest.raises(RuntimeError, match="after a fork"):
        wire.send()


def test_errors_of_the_client_are_one_family():
    assert issubclass(Unreachable, RadixError)
