"""What a daemon does as time passes, whatever becomes of one of its pools."""

import asyncio
from pathlib import Path

import pytest

from radixd.server import daemon
from radixd.server.config.file import read_config
from radixd.server.pools.pool import Pool

TWO_POOLS = """
metrics = "off"
[[pools]]
name = "bad"
geometry = "tiny"
tokens = 640
device = "meta"
[[pools]]
name = "good"
geometry = "tiny"
tokens = 640
device = "meta"
"""


async def test_a_tick_that_fails_stops_neither_other_pools_ticks_nor_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "radixd.toml"
    file.write_text(f'socket = "{tmp_path}/radixd.sock"\n{TWO_POOLS}')
    ticked: list[str] = []
    enough = asyncio.Event()

    def tick(pool: Pool) -> None:
        ticked.append(pool.name)
        if len(ticked) == 6:
            enough.set()
        if pool.name == "bad":
            raise RuntimeError("planted")

    monkeypatch.setattr(daemon, "TICK_SECONDS", 0.001)
    monkeypatch.setattr(Pool, "tick", tick)
    running = asyncio.create_task(daemon.Daemon(read_config(file))._tick())
    await enough.wait()
    running.cancel()
    assert ticked[:4] == ["bad", "good"] * 2
    assert "a tick of pool bad failed" in caplog.text
    assert "RuntimeError: planted" in caplog.text
