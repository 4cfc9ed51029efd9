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


TORCH = "__version__ = '2.9'\nclass version: cuda = {cuda}\nclass cuda: is_available = staticmethod(lambda: False)\n"


@pytest.mark.parametrize(
    ("torch", "why"),
    [
        ("raise ImportError", "torch is not installed"),
        (TORCH.format(cuda="None"), "its torch 2.9 was built without CUDA"),
        (TORCH.format(cuda="'13.0'"), "its torch finds no NVIDIA driver, or no GPU"),
    ],
)
def test_without_a_gpu_the_script_says_what_is_missing(
    torch: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text(torch)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHON", sys.executable)
    results = tmp_path / "results"
    done = subprocess.run(["scripts/gpu_check.sh", str(results)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert (line := done.stderr).count("\n") == 1
    assert f"has no torch that sees a GPU ({why})" in line
    assert not results.exists()
