"""Who has a GPU open, read from /proc."""

import os
from pathlib import Path

import pytest

from radixd.gpu_pool.cuda.holders import named_holders

OWN = 5_000


@pytest.fixture(autouse=True)
def own_pid(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of the invented ones."""
    monkeypatch.setattr(os, "getpid", lambda: OWN)


def _process(root: Path, pid: int, name: str | None, *files: str) -> None:
    folder = root / "proc" / str(pid)
    (folder / "fd").mkdir(parents=True)
    if name is not None:
        (folder / "comm").write_text(f"{name}\n")
    for number, file in enumerate(files):
        (folder / "fd" / str(number)).symlink_to(file)


def test_processes_with_a_gpu_open_are_named_once_and_this_one_is_not(tmp_path: Path) -> None:
    _process(tmp_path, 40, "python3", "/dev/null", "/dev/nvidia0", "/dev/nvidia7")
    _process(tmp_path, 7, None, "/dev/nvidia3")
    _process(tmp_path, 8, "smi", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0 (deleted)")
    _process(tmp_path, OWN, "radixd", "/dev/nvidia0")
    (tmp_path / "proc" / "77").mkdir()
    assert named_holders(tmp_path) == "processes with a GPU open: 7 (?), 40 (python3)"


def test_a_long_list_is_cut_and_none_is_said(tmp_path: Path) -> None:
    assert "no process" in named_holders(tmp_path)
    for pid in range(1, 12):
        _process(tmp_path, pid, "p", "/dev/nvidia1")
    assert named_holders(tmp_path).endswith("8 (p) and 3 more")


def test_this_machines_processes_can_be_read() -> None:
    assert named_holders()
