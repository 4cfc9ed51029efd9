"""The client's examples in README.md and docs/first-hour.md run as printed."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.daemon_process import PATIENCE_S, DaemonProcess

ROOT = Path(__file__).parents[2]


@pytest.fixture
def runtime(folder: Path) -> Iterator[Path]:
    """XDG_RUNTIME_DIR with a daemon where a client looks first."""
    (folder / "radixd").mkdir()
    daemon = DaemonProcess(folder / "radixd", "--device", "cpu", name="radixd.sock")
    try:
        daemon.serving()
        yield folder
    finally:
        daemon.stop()


def printed(document: str, heading: str) -> list[str]:
    """The Python blocks behind `heading`."""
    section = (ROOT / document).read_text().split(heading, 1)[1]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def run(example: str, runtime: Path) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", example],
        env={**os.environ, "XDG_RUNTIME_DIR": str(runtime)},
        cwd=runtime,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_ten_line_client_runs_as_printed(runtime: Path):
    (example,) = printed("README.md", "## A client in ten lines\n")
    told = run(example, runtime)
    assert told.startswith("0 cached; compute the others into pages [")
    assert len(told.splitlines()) < 5
    assert "MatchResult(device_tokens=960" in told


def test_the_worker_runs_as_printed_and_again_on_what_it_has_published(runtime: Path):
    worker, scheduler = printed("docs/first-hour.md", "**Write a worker.**")
    (runtime / "worker.py").write_text(worker)
    for written in (200, 8):
        wrote, hit = run(scheduler, runtime).splitlines()
        assert wrote == f"wrote {written} tokens"
        assert hit.startswith("MatchResult(device_tokens=192")
