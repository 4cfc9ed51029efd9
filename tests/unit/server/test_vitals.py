"""The event loop's lag and the collector's pauses, and what a scrape says while the loop stands still."""

import asyncio
import gc
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from radixd.server.gate import Gate
from radixd.server.observability import loop_reader, vitals
from radixd.server.observability.collector import DaemonCollector
from radixd.server.observability.vitals import GcPauses, LoopBeat, Vitals
from radixd.server.pools.pool import Pool
from radixd.server.sessions.calls import Calls
from radixd.server.sessions.limits import Limits
from radixd.server.sessions.liveness import Liveness
from radixd.server.sessions.registry import SessionRegistry

STALL = 0.1


def hold_up(seconds: float) -> None:
    """Block whoever calls."""
    time.sleep(seconds)


async def stalled(beat: LoopBeat) -> None:
    """Let it beat, then hold the loop up for longer than a beat and a STALL."""
    await asyncio.sleep(2 * vitals.BEAT_SECONDS)
    hold_up(STALL + vitals.BEAT_SECONDS)
    await asyncio.sleep(2 * vitals.BEAT_SECONDS)


async def test_a_stall_is_counted_and_remembered() -> None:
    beat = LoopBeat()
    await stalled(beat)
    assert beat.lag.count >= 3
    assert sum(beat.lag.counts[beat.lag.bounds.index(STALL) :]) >= 1
    assert beat.longest >= STALL
    assert beat.longest >= STALL, "reading does not forget"
    beat.close()


async def test_a_stall_is_forgotten_after_two_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vitals, "WINDOW_SECONDS", vitals.BEAT_SECONDS)
    beat = LoopBeat()
    await stalled(beat)
    while beat.longest >= STALL:  # noqa: ASYNC110 - nothing tells of the end of a window
        await asyncio.sleep(vitals.BEAT_SECONDS)
    beat.close()


def test_collections_are_counted_by_generation() -> None:
    pauses = GcPauses()
    gc.collect(2)
    gc.collect(0)
    pauses.close()
    assert pauses.seconds[2].count >= 1
    assert pauses.seconds[0].count >= 1
    assert pauses.seconds[2].sum > 0
    counts = [seconds.count for seconds in pauses.seconds]
    gc.collect()
    assert [seconds.count for seconds in pauses.seconds] == counts, "closed"


def scrape(it: DaemonCollector) -> dict[str, float]:
    return {sample.name: sample.value for family in it.collect() for sample in family.samples}


@pytest.fixture
async def daemon() -> DaemonCollector:
    watched = Vitals()
    yield made(watched)
    watched.close()


def made(watched: Vitals) -> DaemonCollector:
    """On the running loop, without a pool."""
    registry: SessionRegistry[Pool] = SessionRegistry({}, 7 * 10**9, Limits(), Liveness(), "")
    return DaemonCollector({}, registry, Gate(), Calls(), watched, drain_seconds=10)


async def test_it_can_be_asked_on_the_loop_itself_and_on_another_thread(daemon: DaemonCollector) -> None:
    here, there = scrape(daemon), await asyncio.to_thread(scrape, daemon)
    assert set(here) == set(there)
    assert here["radixd_loop_answers"] == 1
    assert here["radixd_epoch_timestamp_seconds"] == 7


async def test_a_loop_that_stands_still_is_told_of(daemon: DaemonCollector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_reader, "PATIENCE_SECONDS", STALL)
    await asyncio.sleep(2 * vitals.BEAT_SECONDS)
    with ThreadPoolExecutor() as threads:
        told = threads.submit(scrape, daemon).result()  # which holds up this loop until the other thread is told
    assert told["radixd_loop_answers"] == 0
    assert told["radixd_event_loop_longest_stall_seconds"] > 0
    assert told["radixd_draining_seconds"] == 0


def test_a_loop_that_has_ended_answers_no_more() -> None:
    async def left() -> DaemonCollector:
        watched = Vitals()
        watched.close()
        return made(watched)

    assert scrape(asyncio.run(left()))["radixd_loop_answers"] == 0
