"""A journal that ends anywhere, or has any bit wrong: a restart adopts right bytes or none, and never fails."""

from pathlib import Path

import numpy as np
import pytest

from radixd.server.cache.namespace import Namespace
from radixd.server.journal.header import HEADER_BYTES, Verdict
from tests.unit.journal.tier import Prefix, Tier, adoptable, adopted, ids, key_of


@pytest.fixture
def story(tmp_path: Path) -> tuple[Tier, dict[int, dict[int, Prefix]]]:
    """A small journal, and what was to be adopted at each of its flushes, by the file's size.

    No page is overwritten in it, so that only the records say what may be adopted.
    """
    tier = Tier(tmp_path, host_pages=32)
    moments = {tier.journal.size: adoptable(tier.held)}

    def flush() -> None:
        assert tier.journal.flush()
        moments[tier.journal.size] = adoptable(tier.held)

    # The first run names its namespace, a record of its own that changes nothing.
    tier.keep(b"", key_of(1, 2, 3), ids(1, 2, 3))
    flush()
    tier.keep(key_of(1), key_of(4), ids(4))
    flush()
    tier.lose(ids(2, 3))
    flush()
    tier.keep(b"", key_of(1), ids(5), Namespace(b"m", b"x", b"y"))
    flush()
    tier.keep(key_of(1), key_of(2), ids(6))
    flush()
    tier.lose(ids(4))
    flush()
    tier.journal.close()
    moments[(tmp_path / "journal").stat().st_size] = adoptable(tier.held)
    return tier, moments


def test_a_journal_cut_at_any_byte_says_what_was_flushed_before(
    story: tuple[Tier, dict[int, dict[int, Prefix]]],
) -> None:
    tier, moments = story
    path = tier.directory / "journal"
    whole = path.read_bytes()
    for size in range(len(whole), -1, -1):
        path.write_bytes(whole[:size])
        recovered = tier.recover()
        found = adopted(recovered, tier.pages)
        if size < HEADER_BYTES:
            assert recovered.verdict in (Verdict.DAMAGED, Verdict.GIVEN_UP)
            assert not found
            assert recovered.reason
            continue
        assert recovered.verdict is Verdict.WARM
        assert found == moments[max(moment for moment in moments if moment <= size)], size
        assert recovered.clean == (size == len(whole))
        if size not in moments and not recovered.bad:
            assert replayed_whole(whole, size), f"a cut at {size} was not told"


def replayed_whole(whole: bytes, size: int) -> bool:
    """Whether a record ends at `size`: the length of each stands behind its checksum."""
    at = HEADER_BYTES
    while at < size:
        at += 13 + int.from_bytes(whole[at + 8 : at + 12], "little")
    return at == size


def test_a_journal_with_any_bit_wrong_gives_right_bytes_or_none(
    story: tuple[Tier, dict[int, dict[int, Prefix]]],
) -> None:
    tier, moments = story
    path = tier.directory / "journal"
    whole = path.read_bytes()
    states = list(moments.values())
    for byte in range(len(whole)):
        flipped = bytearray(whole)
        flipped[byte] ^= 1 << (byte % 8)
        path.write_bytes(flipped)
        recovered = tier.recover()
        found = adopted(recovered, tier.pages)  # checks bytes
        if byte < HEADER_BYTES:
            assert recovered.verdict is not Verdict.WARM
            assert not found
        else:
            assert recovered.bad, f"byte {byte}"
            assert found in states


def test_a_torn_journal_is_healed_by_the_next_start(story: tuple[Tier, dict[int, dict[int, Prefix]]]) -> None:
    tier, _ = story
    path = tier.directory / "journal"
    path.write_bytes(path.read_bytes()[:-20])
    again = Tier(tier.directory, tier.host_pages)
    assert again.recovered.bad
    kept = adopted(again.recovered, again.pages)
    once_more = again.recover()
    assert not once_more.bad
    assert adopted(once_more, again.pages) == kept


def test_pages_overwritten_behind_a_lost_record_are_dropped(tmp_path: Path) -> None:
    """Even a journal that lost its DEAD records to a power cut gives no wrong bytes: the checksum decides."""
    tier = Tier(tmp_path)
    tier.keep(b"", key_of(1, 2), ids(1, 2))
    tier.journal.flush()
    before = (tmp_path / "journal").read_bytes()
    tier.lose(ids(1, 2))
    tier.journal.flush()
    tier.keep(b"", key_of(8, 9), ids(1, 2))
    (tmp_path / "journal").write_bytes(before)
    recovered = tier.recover()
    assert recovered.pages == 0
    assert recovered.dropped.checksum == 2


def test_noise_is_no_journal(tier: Tier) -> None:
    rng = np.random.default_rng(1)
    head = (tier.directory / "journal").read_bytes()[:HEADER_BYTES]
    for size in (1, 8, 12, 100, 5000):
        noise = rng.bytes(size)
        (tier.directory / "journal").write_bytes(noise)
        assert tier.recover().verdict is Verdict.DAMAGED
        (tier.directory / "journal").write_bytes(head + noise)
        recovered = tier.recover()
        assert (recovered.verdict, recovered.pages) == (Verdict.WARM, 0)
        assert recovered.bad.startswith(f"byte {HEADER_BYTES}: ")
