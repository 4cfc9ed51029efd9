"""A sign of life is asked for now and then; silence is told of, and forgiven."""

import asyncio
import logging
from concurrent.futures import Future

import pytest

from radixd.server.pools.copier import Copier
from radixd.server.pools.gpu_watch import PERIOD_SECONDS, GpuWatch


async def settled(copier: Copier) -> None:
    """Every answer so far has been told on the loop."""
    done = asyncio.get_running_loop().create_future()
    copier.submit(lambda: None, done.set_result)
    await done


async def test_silence_beyond_the_deadline_is_told_once_and_forgiven(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    now, copier, asked = 0.0, Copier(), list[Future[None]]()

    def ask() -> Future[None]:
        asked.append(Future())
        return asked[-1]

    watch = GpuWatch("a", ask, copier, deadline_seconds=30.0, clock=lambda: now)
    watch.tick()
    await settled(copier)
    assert not asked
    now += PERIOD_SECONDS
    watch.tick()
    watch.tick()
    await settled(copier)
    assert len(asked) == 1
    now += 30.0
    watch.tick()
    assert not watch.silent
    now += 1.0
    watch.tick()
    watch.tick()
    assert watch.silent
    assert [record.getMessage() for record in caplog.records] == ["pool a: its GPUs have not answered for 31 s"]
    asked[0].set_exception(OSError("gone"))  # also an answer
    await settled(copier)
    assert not watch.silent
    watch.tick()
    await settled(copier)
    assert len(asked) == 2
    asked[1].set_result(None)
    assert copier.close(60)
