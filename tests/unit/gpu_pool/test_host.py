"""The host tier's memory: really there, the same bytes after a restart, and a clear message where there is no room."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xxhash

from radixd.gpu_pool import host_file
from radixd.gpu_pool.device import DeviceMemoryError
from radixd.gpu_pool.host import HostPool
from radixd.gpu_pool.host_file import HostFile, new_memory_bytes
from radixd.gpu_pool.layout import pages_for_bytes
from radixd.gpu_pool.pairs import MoveError
from radixd.gpu_pool.presets import load_geometry
from tests.descriptors import open_descriptors, settled_descriptors

TINY = load_geometry("tiny")
MIB = 2**20


def test_anonymous_pages_are_zero_one_run_each_and_given_up_on_close() -> None:
    before = settled_descriptors()
    host = HostPool.anonymous(TINY, 9)
    assert host.pages.shape == (10, TINY.bytes_per_page)
    assert host.pages.flags.c_contiguous
    assert not host.pages.any()
    host.views.region("index", 0, "scale")[4] = 1.5
    assert host.pages[4].any()
    assert not host.pages[[3, 5]].any()
    host.close()
    assert open_descriptors() == before, "a mapping holds a descriptor of its own"


def test_a_tier_sized_from_bytes_stays_within_them() -> None:
    nbytes = 10 * TINY.bytes_per_page + 5
    host = HostPool.anonymous(TINY, pages_for_bytes(TINY, nbytes))
    assert host.layout.num_pages == 9
    assert host.pages.nbytes <= nbytes
    host.close()


def test_a_file_is_allocated_whole_private_and_holds_its_bytes_when_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    host = HostPool.in_file(TINY, 9, path)
    assert path.stat().st_blocks * 512 >= host.layout.nbytes, "a hole without room would be a SIGBUS later"
    assert path.stat().st_mode & 0o777 == 0o600
    host.pages[:] = np.random.default_rng(5).integers(0, 256, host.pages.shape, np.uint8)
    kept = host.pages.copy()
    host.close()
    again = HostPool.in_file(TINY, 9, path)
    assert (again.pages == kept).all()
    again.close()
    smaller = HostPool.in_file(TINY, 4, path)
    assert (smaller.pages == kept[:5]).all()
    smaller.close()
    larger = HostPool.in_file(TINY, 20, path)
    assert (larger.pages[:5] == kept[:5]).all()
    larger.close()


KILLED = """
import os, signal, sys
from pathlib import Path
from radixd.gpu_pool.host import HostPool
from radixd.gpu_pool.presets import load_geometry
host = HostPool.in_file(load_geometry("tiny"), 9, Path(sys.argv[1]))
host.pages[7] = 123
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_file_holds_what_a_killed_process_wrote(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    run = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert run.returncode == -9
    host = HostPool.in_file(TINY, 9, path)
    assert (host.pages[7] == 123).all()
    host.close()


def test_a_file_that_may_not_grow_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    before, limits = settled_descriptors(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, limits[1]))
    try:
        HostFile(path, MIB).close()
        path.write_bytes(b"kept")
        for name, left in [("pages", True), ("others", False)]:
            with pytest.raises(
                DeviceMemoryError, match=f"{name} need {2 * MIB} bytes, its file system has .*too large"
            ):
                HostFile(tmp_path / name, 2 * MIB)
            assert (tmp_path / name).exists() == left
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"kept"
    assert open_descriptors() == before


FULL = """
import subprocess, sys
from pathlib import Path
from radixd.gpu_pool.device import DeviceMemoryError
from radixd.gpu_pool.host_file import HostFile
folder = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "radixd", str(folder)], check=True)
HostFile(folder / "fits", 2**19).close()
try:
    HostFile(folder / "pages", 2**20)
except DeviceMemoryError as error:
    print(error)
print(sorted(path.name for path in folder.iterdir()))
HostFile(folder / "fits", 2**20).close()
"""


def test_a_full_file_system_is_refused_naming_path_need_and_room(tmp_path: Path) -> None:
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    try:
        subprocess.run([*unshare, "mount", "-t", "tmpfs", "none", str(tmp_path)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this machine lets nobody mount a small tmpfs")
    run = subprocess.run(
        [*unshare, sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    message, files = run.stdout.splitlines()
    assert message.startswith(f"host pages in {tmp_path}/pages need {MIB} bytes, its file system has {MIB // 2} for")
    assert "No space left on device" in message
    assert files == "['fits']"


def test_a_directory_that_cannot_be_written_is_refused_naming_it(tmp_path: Path) -> None:
    for path in (Path("/proc/pages"), tmp_path / "missing" / "pages", tmp_path):
        with pytest.raises(DeviceMemoryError, match=f"cannot keep host pages in {path} "):
            HostFile(path, MIB)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DeviceMemoryError, match="link"):
        HostFile(tmp_path / "link", MIB)
    assert not (tmp_path / "elsewhere").exists()


def test_a_read_only_file_system_is_refused_naming_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(*_: object) -> int:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(DeviceMemoryError, match=f"{tmp_path}/pages .Read-only file system.: make its directory"):
        HostFile(tmp_path / "pages", MIB)


def test_only_what_a_file_newly_takes_of_memory_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pages"
    monkeypatch.setattr(host_file, "_file_system", lambda directory: "ext4")
    assert new_memory_bytes(path, 4 * MIB) == 0
    monkeypatch.setattr(host_file, "_file_system", lambda directory: "tmpfs")
    assert new_memory_bytes(path, 4 * MIB) == 4 * MIB
    HostFile(path, MIB).close()
    assert new_memory_bytes(path, 4 * MIB) == 3 * MIB
    assert new_memory_bytes(path, MIB) == 0
    monkeypatch.setattr("radixd.gpu_pool.host_memory.available_host_bytes", lambda root: (MIB, "memory.max"))
    HostFile(path, 2 * MIB).close()
    with pytest.raises(DeviceMemoryError, match=f"{2 * MIB:,} bytes of host memory are needed .host pages in {path}"):
        HostFile(path, 4 * MIB)


def test_the_kernels_own_file_systems_are_told_apart() -> None:
    assert new_memory_bytes(Path("/dev/shm/radixd-none"), MIB) in (0, MIB)
    assert host_file._file_system(Path("/proc")) == "proc"


def test_checksums_are_xxh3_of_each_pages_bytes_under_its_seed() -> None:
    host = HostPool.anonymous(TINY, 5)
    host.pages[:] = np.random.default_rng(6).integers(0, 256, host.pages.shape, np.uint8)
    seeds = [1, 2**64 - 1, 7]
    digests = host.checksums([4, 1, 5], np.array(seeds, np.uint64))
    assert digests.dtype == np.uint64
    assert digests.tolist() == [
        xxhash.xxh3_64_intdigest(host.pages[page].tobytes(), seed) for page, seed in zip((4, 1, 5), seeds, strict=True)
    ]
    before = host.checksums(range(1, 6))
    host.pages[3, -1] ^= 1
    assert (host.checksums(range(1, 6)) != before).tolist() == [False, False, True, False, False]
    assert host.checksums([]).shape == (0,)
    for page in (0, 6):
        with pytest.raises(MoveError, match=f"host pages {page} are outside"):
            host.checksums([page])
    host.close()
