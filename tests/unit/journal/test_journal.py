"""What a journal says after what it was told, in whatever order."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from radixd.server.cache.chain import ROOT
from radixd.server.cache.host_log import Kept
from radixd.server.cache.namespace import Namespace
from radixd.server.journal.header import Verdict
from radixd.server.journal.journal import State
from radixd.server.journal.seal import seal
from tests.unit.journal.tier import FINGERPRINT, NAMESPACE, Tier, adoptable, adopted, ids, key_of


def after_kill(tier: Tier) -> Tier:
    """The next daemon on the same directory."""
    return Tier(tier.directory, tier.host_pages, tier.compact_bytes, tier.epoch + 1)


def test_a_fresh_directory_starts_cold_and_says_so(tier: Tier) -> None:
    assert tier.recovered.verdict is Verdict.NEW
    assert "no journal" in tier.recovered.reason
    assert tier.journal.state is State.WRITING


def test_what_is_kept_is_adopted_after_a_kill(tier: Tier) -> None:
    tier.keep(b"", key_of(1, 2, 3), ids(5, 2, 9))
    tier.keep(key_of(1, 2), key_of(7), ids(4))
    tier.keep(b"", key_of(1), ids(11), Namespace(b"model", b"adapter", b"salt"))
    assert tier.journal.flush()
    assert tier.journal.live_pages == 5
    again = after_kill(tier)
    assert again.recovered.verdict is Verdict.WARM
    assert not again.recovered.clean
    assert again.held.keys() == {5, 2, 9, 4, 11}
    assert sorted(len(path) for _, _, path in again.recovered.paths()) == [1, 3, 3]


def test_an_orderly_end_is_told(tier: Tier) -> None:
    tier.keep(b"", key_of(1, 2), ids(1, 2))
    tier.journal.close()
    assert tier.journal.state is State.CLOSED
    assert not tier.journal.flush()
    assert after_kill(tier).recovered.clean
    assert not after_kill(tier).recovered.clean  # the restart itself was killed


def test_restarts_lose_nothing(tier: Tier) -> None:
    tier.keep(b"", key_of(1, 2, 3), ids(1, 2, 3))
    tier.journal.flush()
    for _ in range(5):
        expected = adoptable(tier.held)
        tier = after_kill(tier)
        assert adopted(tier.recovered, tier.pages) == expected
        page = max(tier.held) + 1
        tier.keep(key_of(1, 2, 3), key_of(page), ids(page))
        tier.journal.flush()


def test_a_lost_page_takes_what_hangs_on_it(tier: Tier) -> None:
    tier.keep(b"", key_of(1, 2, 3, 4), ids(1, 2, 3, 4))
    tier.lose(ids(2))
    tier.journal.flush()
    again = after_kill(tier)
    assert again.held.keys() == {1}
    assert again.recovered.dropped.orphan == 2


def test_a_page_lost_while_it_is_sealed_is_not_kept(tier: Tier) -> None:
    kept = tier.write(NAMESPACE, b"", key_of(1, 2, 3), ids(1, 2, 3))
    ticket = tier.journal.expect(kept)
    tier.journal.lost(ids(2))
    tier.journal.flush()
    tier.write(NAMESPACE, b"", key_of(8), ids(2))  # overwritten before its checksum is made
    tier.journal.kept(ticket, seal(kept, FINGERPRINT, tier.checksums))
    tier.journal.flush()
    assert tier.journal.live_pages == 2
    assert after_kill(tier).held.keys() == {1}


def test_a_page_given_anew_while_it_is_sealed_keeps_the_later_name(tier: Tier) -> None:
    first = tier.write(NAMESPACE, b"", key_of(1), ids(1))
    early = tier.journal.expect(first)
    tier.journal.lost(ids(1))
    second = tier.write(NAMESPACE, b"", key_of(2), ids(1))
    late = tier.journal.expect(second)
    tier.journal.kept(late, seal(second, FINGERPRINT, tier.checksums))
    tier.journal.kept(early, seal(first, FINGERPRINT, tier.checksums))
    tier.journal.flush()
    assert adopted(after_kill(tier).recovered, tier.pages) == {1: (NAMESPACE, key_of(2))}


def test_of_two_pages_of_one_prefix_the_later_counts(tier: Tier) -> None:
    tier.keep(b"", key_of(1, 2), ids(1, 2))
    tier.keep(b"", key_of(1), ids(7))
    tier.journal.flush()
    again = after_kill(tier)
    assert again.held.keys() == {7, 2}
    assert again.recovered.dropped.duplicate == 1


def test_wrong_bytes_are_dropped_and_counted(tier: Tier) -> None:
    tier.keep(b"", key_of(1, 2, 3), ids(1, 2, 3))
    tier.journal.flush()
    tier.pages[2, 50] ^= 1
    again = after_kill(tier)
    assert again.held.keys() == {1}
    assert (again.recovered.dropped.checksum, again.recovered.dropped.orphan) == (1, 1)


def test_right_bytes_in_a_wrong_place_are_dropped(tier: Tier) -> None:
    """A checksum says whose the page is: the same bytes under another prefix, namespace or geometry fail."""
    other = Namespace(NAMESPACE.model, NAMESPACE.extra_key, b"salt of another")
    kept = tier.write(NAMESPACE, b"", key_of(1), ids(1))
    checksums = seal(kept, FINGERPRINT, tier.checksums)
    for wrong in (Kept(other, ROOT, key_of(1), ids(1)), Kept(NAMESPACE, ROOT, key_of(2), ids(1))):
        tier.journal.kept(tier.journal.expect(wrong), checksums)
        tier.journal.flush()
        assert tier.recover().pages == 0
    assert seal(kept, b"another geometry", tier.checksums) != checksums


def test_what_the_cache_discards_is_not_kept(tier: Tier) -> None:
    tier.keep(b"", key_of(1, 2), ids(1, 2))
    tier.journal.flush()
    recovered = tier.recover()
    recovered.discard(ids(2))
    type(tier.journal).start(tier.directory, recovered)
    assert recovered.dropped.discarded == 1
    assert tier.recover().pages == 1


def test_a_poisoned_journal_is_adopted_by_nobody(tier: Tier) -> None:
    tier.keep(b"", key_of(1, 2), ids(1, 2))
    assert tier.journal.poison("the ledger does not add up")
    tier.keep(b"", key_of(3), ids(3))
    tier.journal.flush()
    tier.journal.close()
    assert tier.journal.state is State.OFF
    again = after_kill(tier)
    assert again.recovered.verdict is Verdict.GIVEN_UP
    assert "the ledger does not add up" in again.recovered.reason
    assert not again.held
    assert again.journal.state is State.WRITING


def test_a_snapshot_can_still_be_poisoned(tier: Tier) -> None:
    tier.keep(b"", key_of(1, 2), ids(1, 2))
    tier.journal.close()
    assert tier.journal.poison("found wrong too late")
    assert after_kill(tier).recovered.verdict is Verdict.GIVEN_UP


def test_a_run_of_a_page_twice_is_refused(tier: Tier) -> None:
    with pytest.raises(ValueError, match="no run of this pool"):
        tier.journal.expect(Kept(NAMESPACE, ROOT, key_of(1, 2), ids(3, 3)))


def test_losing_what_is_not_held_writes_nothing(tier: Tier) -> None:
    before = tier.journal.size
    tier.journal.lost(ids(1, 2, 3, 3))
    assert tier.journal.size == before


def test_a_durable_journal_syncs_what_it_writes(tier: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    journal = type(tier.journal).start(tier.directory, tier.recover(), durable=True)
    monkeypatch.setattr("os.fdatasync", synced.append)
    journal.flush()
    assert not synced  # nothing was written
    kept = tier.write(NAMESPACE, b"", key_of(1), ids(1))
    journal.kept(journal.expect(kept), seal(kept, FINGERPRINT, tier.checksums))
    journal.flush()
    assert len(synced) == 1


def test_ids_and_keys_survive_as_they_were(tier: Tier, tmp_path: Path) -> None:
    """A tree of many branches comes back path by path."""
    rng = np.random.default_rng(5)
    prefixes, pages = [b""], list(range(1, 17))
    for page in pages:
        before = prefixes[int(rng.integers(len(prefixes)))]
        tier.keep(before, key_of(page), ids(page))
        prefixes.append(before + key_of(page))
    tier.journal.flush()
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("journal", "host.data"):
        shutil.copy(tier.directory / name, copy / name)
    assert adopted(Tier(copy).recovered, tier.pages) == adoptable(tier.held)
    assert {page for page, _ in adoptable(tier.held).items()} == set(pages)
