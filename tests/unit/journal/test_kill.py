"""kill -9 of a process that writes, at moments of no choosing."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.journal.tier import Tier, adopted
from tests.unit.journal.writer_process import COMPACT_BYTES, HOST_PAGES

KILLS, MOST_KILLS = 8, 40
"""The writer gives pages up as it goes: at some moments few are left, at 40 in a row they never are."""


@pytest.mark.slow
def test_a_killed_writer_leaves_right_bytes(tmp_path: Path) -> None:
    """One directory through all the kills: each process goes on with what the one before had left."""
    moments = random.Random(7)
    most = 0
    for seed in range(MOST_KILLS):
        command = [sys.executable, "-m", "tests.unit.journal.writer_process", str(tmp_path), str(seed)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            try:
                assert writer.stdout is not None
                assert writer.stdout.readline() == b"under way\n"
                time.sleep(moments.uniform(0, 0.1))
            finally:
                writer.kill()
        assert (tmp_path / "journal").stat().st_size < 2 * COMPACT_BYTES
        tier = Tier(tmp_path, HOST_PAGES, COMPACT_BYTES)
        assert not tier.recovered.reason
        assert not tier.recovered.clean
        assert tier.recovered.dropped.checksum == 0  # what was overwritten had been given up first
        most = max(most, len(adopted(tier.recovered, tier.pages)))
        if seed + 1 >= KILLS and most > HOST_PAGES // 10:
            break
    assert most > HOST_PAGES // 10
