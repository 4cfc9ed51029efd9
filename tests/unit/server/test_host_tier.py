"""The host tier's turn: what is lost is journaled before it may be overwritten, and a broken pool leaves nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import pytest

from radixd.server.cache.invariants import check_invariants
from radixd.server.cache.namespace import Namespace
from radixd.server.cache.session import Dedup
from radixd.server.config.file import read_config
from radixd.server.journal.header import Verdict
from radixd.server.pools.copier import Copier
from radixd.server.pools.host_journal import HostJournal
from radixd.server.pools.host_tier import HostTier
from radixd.server.pools.pool import Pool
from radixd.server.pools.warm_start import read_state
from radixd.server.sessions.fault import stop_pool
from radixd.server.sessions.limits import Limits
from tests.sequences import PAGE, seq

NAMESPACE = Namespace(b"model-1", b"", b"")
Make = Callable[..., Pool]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    """Pools of 16 device pages on one state directory, one after another."""
    copiers: list[Copier] = []
    pools: list[Pool] = []

    def made(host_pages: int = 8, **flags: object) -> Pool:
        flags = {
            "geometry": "tiny", "device": "cpu", "tokens": 16 * PAGE, "host_tokens": host_pages * PAGE,
            "free_target_pages": 0, "promote_min_pages": 1, **flags,
        }  # fmt: skip
        (config,) = read_config(None, {"state_dir": str(tmp_path)}, flags).pools
        assert config.host.state_dir is not None
        config.host.state_dir.mkdir(exist_ok=True)
        copiers.append(Copier())
        pool = Pool(config, Limits(), copiers[-1], epoch=len(copiers))
        pools.append(pool)
        pool.allocate()
        pool.adopt()
        pool.cache.open_session(1, b"model-1", Dedup.KEEP)
        return pool

    yield made
    for copier, pool in zip(copiers, pools, strict=True):
        copier.close()
        pool.close()


def tier_of(pool: Pool) -> HostTier:
    assert pool.tier is not None
    return pool.tier


def journal_of(pool: Pool) -> HostJournal:
    journal = tier_of(pool).journal
    assert journal is not None
    return journal


def publish(pool: Pool, letters: str) -> None:
    lease = pool.cache.acquire(1, NAMESPACE, seq(letters)).lease_id
    pool.cache.release(1, lease, publish_to=len(letters) * PAGE)
    pool.turn()


def on_host(pool: Pool, letters: str) -> int:
    match = pool.cache.match(1, NAMESPACE, seq(letters), max_tokens=len(letters) * PAGE, peek=True)
    return (match.device_tokens + match.host_tokens) // PAGE


async def restarted(pool: Pool, make: Make, **flags: object) -> Pool:
    """The same state directory in its next life, after an orderly end."""
    await pool.save_everything()
    pool.close_journal()
    pool.close()
    return make(**flags)


async def test_an_orderly_end_keeps_the_warmest_prefixes_that_fit(make: Make) -> None:
    pool = make(host_pages=5)
    publish(pool, "ABC")
    publish(pool, "XYZ")
    publish(pool, "ABCD")
    second = await restarted(pool, make, host_pages=5)
    assert [on_host(second, letters) for letters in ("ABCD", "XYZ")] == [4, 1]
    check_invariants(second.cache)
    publish(second, "PQR")
    second.cache.evict(1)  # the tail of PQR
    third = await restarted(second, make, host_pages=5)
    assert on_host(third, "PQR") == 2
    assert sum(on_host(third, letters) for letters in ("PQR", "ABCD", "XYZ")) == 5


async def test_more_than_may_be_under_copies_at_once_is_saved_in_rounds(make: Make) -> None:
    pool = make(host_pages=16, max_copy_pages=3)
    publish(pool, "ABCDEFGH")
    publish(pool, "ABXYZ")
    second = await restarted(pool, make, host_pages=16)
    assert [on_host(second, letters) for letters in ("ABCDEFGH", "ABXYZ")] == [8, 5]


async def test_nothing_is_copied_to_the_host_while_the_journal_cannot_say_what_is_lost(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make(write_policy="write_through")
    monkeypatch.setattr(journal_of(pool).journal, "flush", lambda: False)
    publish(pool, "AB")
    assert pool.traffic.in_flight == 0
    assert pool.cache.occupancy().in_copy == 2
    pool.tick()
    assert pool.cache.occupancy().in_copy == 0
    assert pool.cache.counters.demote_failed_pages == 2
    publish(pool, "CD")
    monkeypatch.undo()
    pool.turn()
    assert pool.traffic.in_flight == 1
    await settled(pool)
    assert pool.cache.host_occupancy().evictable == 2


async def settled(pool: Pool) -> None:
    while pool.traffic.in_flight or journal_of(pool)._sealing:  # noqa: ASYNC110 - what it waits for has no event
        await asyncio.sleep(0.001)


async def test_what_is_lost_stands_in_the_journal_before_the_copy_that_overwrites_it_begins(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make(host_pages=2, write_policy="write_through")
    publish(pool, "AB")
    await settled(pool)
    pool.cache.evict(2)
    assert journal_of(pool).journal.live_pages == 2
    seen: list[int] = []
    monkeypatch.setattr(tier_of(pool), "_begin", lambda plan: seen.append(journal_of(pool).journal.live_pages))
    publish(pool, "CD")
    await settled(pool)
    assert seen == [0]


async def test_a_record_that_cannot_be_taken_ends_the_journal_and_the_pool_serves_on(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make(write_policy="write_through")

    def refuse(kept: object) -> None:
        raise ValueError("no run")

    monkeypatch.setattr(journal_of(pool).journal, "expect", refuse)
    publish(pool, "AB")
    await settled(pool)
    assert pool.journal == "a record could not be taken: no run"
    assert pool.broken is None
    publish(pool, "CD")
    await settled(pool)
    assert pool.cache.host_occupancy().evictable == 4


async def test_a_broken_pool_leaves_no_snapshot(make: Make) -> None:
    pool = make(write_policy="write_through")
    publish(pool, "AB")
    await settled(pool)
    stop_pool(pool, "page 7 has two owners")
    assert "page 7 has two owners" in pool.journal
    await pool.save_everything()
    pool.close_journal()
    host, directory = tier_of(pool)._host, tier_of(pool)._directory
    assert host is not None
    assert directory is not None
    found = read_state(pool.name, directory, host, pool.cache, epoch=9)
    assert found.verdict is Verdict.GIVEN_UP
    assert "page 7 has two owners" in found.reason


async def test_a_copy_that_ends_after_its_pool_broke_is_ignored(make: Make) -> None:
    pool = make(write_policy="write_through")
    publish(pool, "AB")
    stop_pool(pool, "planted")
    while pool.traffic.in_flight:  # noqa: ASYNC110 - what it waits for has no event
        await asyncio.sleep(0.001)
    assert pool.cache.occupancy().in_copy == 2


async def test_a_save_that_fails_is_not_tried_again_at_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = make(free_target_pages=8)
    tried: list[int] = []

    def fail(plan: object) -> None:
        tried.append(1)
        raise OSError("planted")

    monkeypatch.setattr(tier_of(pool), "_begin", fail)
    publish(pool, "ABCDEFGHIJ")
    while pool.traffic.in_flight and len(tried) < 2:  # noqa: ASYNC110 - what it waits for has no event
        await asyncio.sleep(0.001)
    assert len(tried) == 1
    pool.tick()
    while len(tried) < 2:  # noqa: ASYNC110 - what it waits for has no event
        await asyncio.sleep(0.001)
    check_invariants(pool.cache)


async def test_a_pool_without_memory_demotes_in_name(make: Make) -> None:
    (config,) = read_config(
        None,
        {},
        {"geometry": "tiny", "device": "meta", "tokens": 640, "host_tokens": 640, "write_policy": "write_through"},
    ).pools
    copier = Copier()
    pool = Pool(config, Limits(), copier, epoch=1)
    assert pool.memory_parts() == {}
    pool.allocate()
    pool.adopt()
    pool.cache.open_session(1, b"model-1", Dedup.KEEP)
    publish(pool, "AB")
    while pool.traffic.in_flight:  # noqa: ASYNC110 - what it waits for has no event
        await asyncio.sleep(0.001)
    assert (pool.journal, pool.cache.host_occupancy().evictable) == ("", 2)
    copier.close()


async def test_memory_is_counted_over_both_tiers_and_all_devices(make: Make, tmp_path: Path) -> None:
    pool = make(host_pages=8)
    page = pool.geometry.bytes_per_page
    assert pool.memory_parts()["pool default"] == 17 * page
    assert set(pool.memory_parts()) == {"pool default", "host tier of pool default"}
    (config,) = read_config(None, {}, {"geometry": "tiny", "tokens": 640, "devices": 2, "host_tokens": 640}).pools
    copier = Copier()
    parts = Pool(config, Limits(), copier, epoch=1).memory_parts()
    assert parts == {"pool default": 2 * 11 * page, "host tier of pool default": 11 * page}
    copier.close()


async def test_bytes_written_by_an_engine_come_back_in_the_next_life(make: Make) -> None:
    pool = make()
    acquired = pool.cache.acquire(1, NAMESPACE, seq("ABC"))
    assert pool.memory is not None
    for i, page in enumerate(acquired.pages.tolist()):
        for rows in pool.memory.views[0].page_rows:
            rows[page] = i + 1
    pool.cache.release(1, acquired.lease_id, publish_to=3 * PAGE)
    del rows
    second = await restarted(pool, make)
    acquired = second.cache.acquire(1, NAMESPACE, seq("ABCD"))
    second.turn()
    await settled(second)
    assert second.memory is not None
    for i, page in enumerate(acquired.pages.tolist()[:3]):
        for rows in second.memory.views[0].page_rows:
            assert np.all(rows[page].numpy() == i + 1)
    del rows
