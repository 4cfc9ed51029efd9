"""A journal that is written anew while it is written, and killed at every step of it."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from radixd.server.cache.namespace import Namespace
from radixd.server.journal.journal import State
from tests.unit.journal.tier import Tier, adoptable, adopted, ids, key_of

CYCLES = 100_000
COMPACT_BYTES = 3000


@pytest.fixture
def tier(tmp_path: Path) -> Tier:
    """Compacts soon."""
    return Tier(tmp_path, compact_bytes=COMPACT_BYTES)


def expected(tier: Tier) -> bool:
    return adopted(tier.recover(), tier.pages) == adoptable(tier.held)


def fill(tier: Tier) -> None:
    """More dead than live."""
    for number in range(30):
        tier.lose(ids(1, 2, 3))
        tier.journal.flush()
        tier.keep(b"", key_of(number, 1, 2), ids(1, 2, 3))
    tier.keep(key_of(29, 1, 2), key_of(5), ids(4), Namespace(b"m", b"x", b"y"))
    tier.journal.flush()


def test_compaction_keeps_what_is_live(tier: Tier) -> None:
    fill(tier)
    before = tier.journal.size
    assert tier.compact()
    assert tier.journal.size < before / 8
    assert tier.journal.compactions == 1
    assert expected(tier)
    assert not tier.compact()  # there is nothing to gain


def test_what_happens_during_a_compaction_counts(tier: Tier) -> None:
    fill(tier)
    compaction = tier.journal.begin_compaction()
    assert compaction is not None
    assert tier.journal.begin_compaction() is None
    tier.lose(ids(3))
    tier.journal.flush()
    tier.keep(key_of(29, 1), key_of(8, 9), ids(3, 7))
    compaction.run()
    tier.lose(ids(7))
    tier.keep(b"", key_of(5), ids(9))
    tier.journal.flush()
    assert expected(tier)  # killed before the rename
    tier.journal.finish_compaction(compaction)
    tier.journal.flush()
    assert expected(tier)  # killed behind it
    tier.lose(ids(1, 9))  # positions in the new file are right: these are found, and die
    tier.keep(b"", key_of(6), ids(1))
    tier.journal.flush()
    assert expected(tier)
    assert tier.journal.live_pages == len(tier.held)


def test_a_half_written_new_file_is_never_read(tier: Tier) -> None:
    fill(tier)
    compaction = tier.journal.begin_compaction()
    assert compaction is not None
    compaction.run()
    new = tier.directory / "journal.new"
    for size in (0, 10, new.stat().st_size // 2):
        with new.open("r+b") as file:
            file.truncate(size)
        assert expected(tier)
    again = Tier(tier.directory, compact_bytes=COMPACT_BYTES)
    assert not new.exists()
    assert adopted(again.recovered, again.pages) == adoptable(tier.held)


def test_a_journal_poisoned_during_a_compaction_stays_so(tier: Tier) -> None:
    fill(tier)
    compaction = tier.journal.begin_compaction()
    assert compaction is not None
    tier.journal.poison("wrong")
    compaction.run()
    tier.journal.finish_compaction(compaction)
    assert tier.journal.state is State.OFF
    assert tier.recover().pages == 0
    assert not (tier.directory / "journal.new").exists()


def test_a_journal_found_damaged_by_a_compaction_is_given_up(tier: Tier) -> None:
    fill(tier)
    with (tier.directory / "journal").open("r+b") as file:
        file.seek(300)
        file.write(b"\xff" * 8)
    assert tier.compact()
    assert tier.journal.state is State.OFF
    assert "cannot be compacted: byte" in tier.journal.reason


def test_namespaces_without_pages_are_forgotten(tier: Tier) -> None:
    sizes = []
    for number in range(2000):
        tier.lose(ids(1))
        tier.journal.flush()
        tier.keep(b"", key_of(1), ids(1), Namespace(b"m", b"", number.to_bytes(64, "little")))
        tier.journal.flush()
        if tier.compact():
            sizes.append(tier.journal.size)
    assert max(sizes) == min(sizes)
    assert expected(tier)


def test_a_namespace_named_again_and_again_is_one(tier: Tier) -> None:
    """Each compaction lets numbers be given anew; those that live on do not pile up."""
    tier.keep(b"", key_of(1), ids(1))
    for number in range(50):
        tier.lose(ids(2))
        tier.keep(key_of(1), key_of(number), ids(2))
        tier.journal.flush()
        tier.compact()
    assert expected(tier)
    data = (tier.directory / "journal").read_bytes()
    assert data.count(b"salt") <= 2


@pytest.mark.parametrize("during", [0, 37])
def test_the_file_is_bounded_under_churn(tmp_path: Path, during: int) -> None:
    """10⁵ pages come and go; `during` more while each compaction runs."""
    limit = 256 << 10
    tier = Tier(tmp_path, host_pages=400, compact_bytes=limit)
    rng = np.random.default_rng(3)
    largest, pending = 0, None
    for cycle in range(CYCLES // 20):
        pages = rng.choice(np.arange(1, 401, dtype=np.int32), 20, replace=False)
        tier.lose(pages)
        assert tier.journal.flush()
        tier.keep(b"", key_of(*range(cycle, cycle + 20)), pages)
        assert tier.journal.flush()
        if pending is None and (pending := tier.journal.begin_compaction()) is not None:
            pending.run()
            wait = cycle + during
        if pending is not None and cycle >= wait:
            tier.journal.finish_compaction(pending)
            pending = None
        largest = max(largest, tier.journal.size)
    assert tier.journal.state is State.WRITING
    assert tier.journal.compactions >= 5
    assert largest < limit + (during + 2) * 1024
    assert expected(tier)


def test_a_journal_that_nobody_compacts_gives_up(tmp_path: Path) -> None:
    tier = Tier(tmp_path, compact_bytes=4096)
    sizes = []
    while tier.journal.state is State.WRITING:
        tier.lose(ids(1))
        assert tier.journal.flush()
        tier.keep(b"", key_of(len(sizes)), ids(1))
        assert tier.journal.flush()
        sizes.append(tier.journal.size)
    assert all(a < b for a, b in pairwise(sizes[:-1]))
    assert sizes[-2] <= 2 * 4096
    assert "does not keep up" in tier.journal.reason
    assert tier.recover().pages == 0
