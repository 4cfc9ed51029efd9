"""One daemon a socket."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from radixd.server.lockfile import AlreadyRunning, LockFile


def test_a_second_lock_names_the_first_and_its_owner(tmp_path: Path) -> None:
    first = LockFile(tmp_path / "lock", "--socket")
    first.acquire()
    with pytest.raises(AlreadyRunning, match=rf"pid {os.getpid()}\) holds {tmp_path / 'lock'}"):
        LockFile(tmp_path / "lock", "--socket").acquire()


def test_release_leaves_the_file_and_gives_the_lock(tmp_path: Path) -> None:
    first = LockFile(tmp_path / "lock", "--socket")
    first.acquire()
    inode = (tmp_path / "lock").stat().st_ino
    first.release()
    LockFile(tmp_path / "lock", "--socket").acquire()
    assert (tmp_path / "lock").stat().st_ino == inode


def test_a_child_does_not_keep_the_lock_of_its_parent(tmp_path: Path) -> None:
    lock = LockFile(tmp_path / "lock", "--socket")
    lock.acquire()
    program = [sys.executable, "-c", "print('up', flush=True); input()"]
    child = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        lock.release()
        LockFile(tmp_path / "lock", "--socket").acquire()
    finally:
        child.kill()
        child.wait()
