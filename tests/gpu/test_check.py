"""What scripts/gpu_check.sh prints: every measurement is taken, and all of it ends in one table."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.gpu import GpuPart
from bench.table import write_json
from radixd.gpu_pool.cuda.gpu import Gpu
from radixd.gpu_pool.presets import load_geometry

JUNIT = """<testsuites><testsuite><testcase name="test_bytes_come_back" time="1.25"/>
<testcase name="test_a_lost_byte" time="0.1"><failure message="no"/></testcase></testsuite></testsuites>"""


def test_every_measurement_is_taken(gpus: tuple[Gpu, ...], tmp_path: Path) -> None:
    with GpuPart(rounds=1, geometry=load_geometry("tiny"), pages=8) as part:
        rows = list(part.rows())
    assert len(rows) == 2 * 2 * 2 + 1 + 2 + (len(gpus) > 1)
    assert all(row.ratio and row.ratio > 0 for row in rows)

    tests, bench = tmp_path / "tests.xml", tmp_path / "bench.json"
    tests.write_text(JUNIT)
    write_json(bench, {"gpu": rows})
    table = subprocess.run(
        [sys.executable, "scripts/gpu_table.py", str(tests), str(bench)],
        capture_output=True, text=True, check=True, env=os.environ,
    ).stdout  # fmt: skip
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    assert lines[1:3] == ["| bytes come back | ok | 1.2 s |", "| a lost byte | FAILURE | 0.1 s |"]
    assert len(lines) == 1 + 2 + len(rows) == 1 + 2 + len(json.loads(bench.read_text())["gpu"])
    assert gpus[0].name in table


def test_without_a_gpu_the_script_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON", "/bin/false")
    done = subprocess.run(["scripts/gpu_check.sh", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "has no torch that sees a GPU" in done.stderr
