"""The benchmarks run: `make bench` is for people, and nothing else calls what it calls."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("part", ["tree", "grpc", "copies"])
def test_each_part_measures_something(part: str, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = (sys.executable, "-m", "bench", "--quick", "--only", part, "--json", str(figures))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads(figures.read_text())[part]
    assert rows
    assert all(row["radixd"] > 0 for row in rows)
