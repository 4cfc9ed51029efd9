"""The README's client example runs as printed."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.e2e.daemon_process import PATIENCE_S, DaemonProcess

README = Path(__file__).parents[2] / "README.md"


def test_the_ten_line_client_runs_as_printed(folder: Path):
    section = README.read_text().split("## A client in ten lines\n", 1)[1]
    example = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert example is not None
    runtime = folder / "radixd"
    runtime.mkdir()
    daemon = DaemonProcess(runtime, "--device", "cpu", name="radixd.sock")
    try:
        daemon.serving()
        ran = subprocess.run(
            [sys.executable, "-c", example[1]],
            env={**os.environ, "XDG_RUNTIME_DIR": str(folder)},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    finally:
        daemon.stop()
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("0 cached; write the others to slots [")
    assert "MatchResult(device_tokens=960" in ran.stdout
