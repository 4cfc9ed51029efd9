"""Devices: memory that is really there, sealed and shared with other processes; copies in order, late or at once."""

import fcntl
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
import torch

from radixd.gpu_pool.cpu import CpuDevice
from radixd.gpu_pool.cpu_async import CpuAsyncDevice
from radixd.gpu_pool.device import DeviceMemoryError
from radixd.gpu_pool.host_memory import available_host_bytes, check_fits
from radixd.gpu_pool.layout import Layout
from radixd.gpu_pool.mapping import MappingError, map_buffer
from radixd.gpu_pool.memory import PoolMemory
from radixd.gpu_pool.move import copy_pages
from radixd.gpu_pool.presets import load_geometry
from tests.descriptors import open_descriptors, settled_descriptors
from tests.unit.gpu_pool.pools import MakePool

TINY = load_geometry("tiny")
MIB = 2**20


def _fd(device: CpuDevice | CpuAsyncDevice) -> int:
    fd = device.export().fd
    assert fd is not None
    return fd


def test_cpu_memory_is_zero_really_allocated_and_sealed() -> None:
    device = CpuDevice(4 * MIB)
    fd = _fd(device)
    assert not device.buffer.any()
    assert os.fstat(fd).st_blocks * 512 >= 4 * MIB, "pages that do not exist yet would be a SIGBUS later"
    for size in (2 * MIB, 8 * MIB):
        with pytest.raises(PermissionError):
            os.ftruncate(fd, size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    assert not os.get_inheritable(fd)
    device.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_views_outlive_the_device() -> None:
    device = CpuDevice(MIB)
    buffer = device.buffer
    device.close()
    buffer[:] = 7
    assert buffer.sum().item() == 7 * MIB


SECOND_PROCESS = """
import sys
from radixd.gpu_pool.mapping import map_buffer
buffer = map_buffer(int(sys.argv[1]), int(sys.argv[2]))
assert buffer[:4].tolist() == [1, 2, 3, 4], buffer[:4]
buffer[-4:] = 9
print("done")
"""


def test_a_second_process_sees_our_writes_and_we_see_its() -> None:
    device = CpuDevice(MIB)
    device.buffer[:4] = torch.tensor([1, 2, 3, 4], dtype=torch.uint8)
    fd = _fd(device)
    run = subprocess.run(
        [sys.executable, "-c", SECOND_PROCESS, str(fd), str(MIB)],
        pass_fds=[fd],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stdout) == (0, "done\n"), run.stderr
    assert device.buffer[-4:].tolist() == [9] * 4
    device.close()


def test_more_memory_than_there_is_is_refused_at_start_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("radixd.gpu_pool.host_memory.available_host_bytes", lambda root: (MIB, "memory.max"))
    CpuDevice(MIB).close()
    with pytest.raises(DeviceMemoryError, match=f"{MIB + 1:,} bytes .* but memory.max leaves {MIB:,}"):
        CpuDevice(MIB + 1)


def test_memory_that_the_kernel_does_not_give_is_an_error_without_leaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("radixd.gpu_pool.host_memory.available_host_bytes", lambda root: (2**62, "nothing"))
    before = settled_descriptors()

    def full(fd: int, offset: int, length: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DeviceMemoryError, match="No space left on device"):
        CpuDevice(MIB)
    assert open_descriptors() == before


def test_a_pool_that_fits_only_in_part_gives_everything_back(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(TINY, "page_first", 10)
    room = iter([layout.nbytes, layout.nbytes, layout.nbytes - 1])
    monkeypatch.setattr("radixd.gpu_pool.host_memory.available_host_bytes", lambda root: (next(room), "the cgroup"))
    before = settled_descriptors()
    with pytest.raises(DeviceMemoryError):
        PoolMemory.allocate(layout, "cpu", count=3)
    assert open_descriptors() == before


def _machine(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


MEMINFO = {"proc/meminfo": "MemTotal: 9000 kB\nMemAvailable: 1000 kB\n"}


def _v2(folder: str, limit: str, usage: int, inactive: int = 0) -> dict[str, str]:
    return {
        f"sys/fs/cgroup{folder}/memory.max": f"{limit}\n",
        f"sys/fs/cgroup{folder}/memory.current": f"{usage}\n",
        f"sys/fs/cgroup{folder}/memory.stat": f"anon 5\ninactive_file {inactive}\n",
    }


def test_room_is_the_least_of_the_machines_and_every_cgroups(tmp_path: Path) -> None:
    me = {"proc/self/cgroup": "0::/pod/box\n"}
    free = _machine(tmp_path / "a", {**MEMINFO, **me, **_v2("/pod/box", "max", 10)})
    assert available_host_bytes(free) == (1000 * 1024, "MemAvailable in /proc/meminfo")
    inner = _machine(tmp_path / "b", {**MEMINFO, **me, **_v2("/pod/box", "5000", 3000, inactive=500)})
    assert available_host_bytes(inner)[0] == 2500
    outer = _machine(tmp_path / "c", {**MEMINFO, **me, **_v2("/pod/box", "5000", 3000), **_v2("/pod", "4000", 3900)})
    assert available_host_bytes(outer) == (100, f"{outer}/sys/fs/cgroup/pod/memory.max")
    hidden = _machine(tmp_path / "d", {**MEMINFO, "proc/self/cgroup": "0::/../host/path\n", **_v2("", "700", 0)})
    assert available_host_bytes(hidden)[0] == 700
    old = {
        "proc/self/cgroup": "9:cpu:/\n4:memory:/box\n0::/\n",
        "sys/fs/cgroup/memory/box/memory.limit_in_bytes": "900\n",
        "sys/fs/cgroup/memory/box/memory.usage_in_bytes": "600\n",
        "sys/fs/cgroup/memory/box/memory.stat": "total_inactive_file 50\n",
    }
    assert available_host_bytes(_machine(tmp_path / "e", {**MEMINFO, **old}))[0] == 350


GIB = 2**30


def _node(pool_bytes: int, order: int) -> dict[str, int]:
    """Host tiers of eight pools, each with an indexer of a tenth, in one of two orders."""
    parts = {f"pool {i}": pool_bytes for i in range(8)} | {f"pool {i} index": pool_bytes // 10 for i in range(8)}
    return dict(list(parts.items())[::order])


@pytest.mark.parametrize("order", [1, -1])
def test_all_pools_together_must_fit_and_the_sum_is_named(tmp_path: Path, order: int) -> None:
    machine = _machine(
        tmp_path,
        {
            "proc/meminfo": f"MemAvailable: {200 * GIB // 1024} kB\n",
            "proc/self/cgroup": "0::/pod\n",
            **_v2("/pod", str(100 * GIB), 0),
        },
    )
    check_fits(_node(10 * GIB, order), machine)
    with pytest.raises(DeviceMemoryError) as refused:
        check_fits(_node(12 * GIB, order), machine)
    total = 8 * (12 * GIB + 12 * GIB // 10)
    assert str(refused.value).startswith(f"{total:,} bytes of host memory are needed (pool 0: {12 * GIB:,}, ")
    assert f"pool 7 index: {12 * GIB // 10:,})" in str(refused.value)
    assert f"pod/memory.max leaves {100 * GIB:,} (100.00 GiB): make the pools smaller" in str(refused.value)


def test_this_machine_has_room() -> None:
    room, limit = available_host_bytes()
    assert room > 0
    assert limit


def test_only_sealed_memory_of_the_right_size_is_mapped() -> None:
    device = CpuDevice(MIB)
    with pytest.raises(MappingError, match=f"expected shared memory of {2 * MIB} bytes, got a file of {MIB}"):
        map_buffer(_fd(device), 2 * MIB)
    device.close()
    open_fd = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
    os.ftruncate(open_fd, MIB)
    with pytest.raises(MappingError, match="lacks seals"):
        map_buffer(open_fd, MIB)
    os.close(open_fd)
    read_end, write_end = os.pipe()
    with pytest.raises(MappingError, match="expected shared memory"):
        map_buffer(read_end, MIB)
    os.close(read_end)
    os.close(write_end)
    with tempfile.NamedTemporaryFile(dir=Path(__file__).parent) as file:
        file.truncate(MIB)
        with pytest.raises(MappingError, match="seals"):
            map_buffer(file.fileno(), MIB)


def test_a_late_copy_reads_its_source_when_it_runs(make_pool: MakePool) -> None:
    """What catches a missing fence: whoever reuses the source before the copy has ended is seen."""
    memory = make_pool("tiny", device="cpu_async")
    (device,) = memory.devices
    assert isinstance(device, CpuAsyncDevice)
    pages = memory.views[0].page_rows[0]
    device.pause()
    late = copy_pages(memory, [1], [2])
    assert not late.done()
    pages[1] = 77
    device.resume()
    late.result()
    assert (pages[2] == 77).all()


def test_late_copies_run_in_the_order_given_and_a_probe_ends_after_all(make_pool: MakePool) -> None:
    memory = make_pool("tiny", device="cpu_async", count=2)
    first_pages = [views.page_rows[0][1].clone() for views in memory.views]
    copies = [copy_pages(memory, [page], [page + 1]) for page in range(1, 12)]
    memory.probe().result()
    assert all(copy.done() for copy in copies)
    for views, first in zip(memory.views, first_pages, strict=True):
        assert (views.page_rows[0][2:13] == first).all()


def test_a_pools_copy_ends_with_its_last_device(make_pool: MakePool) -> None:
    memory = make_pool("tiny", device="cpu_async", count=2)
    last = memory.devices[-1]
    assert isinstance(last, CpuAsyncDevice)
    last.pause()
    copy = copy_pages(memory, [1], [2])
    memory.devices[0].probe().result()
    assert not copy.done()
    last.resume()
    copy.result()
    for views in memory.views:
        assert torch.equal(views.page_rows[0][2], views.page_rows[0][1])


def test_closing_runs_what_was_handed_in_without_further_delay() -> None:
    memory = PoolMemory.allocate(Layout(TINY, "page_first", 3), "cpu_async", copy_delay_s=3600.0)
    pages = memory.views[0].page_rows[0]
    pages[1] = 5
    late = copy_pages(memory, [1], [3])
    with pytest.raises(TimeoutError):
        late.result(timeout=0.05)
    assert not pages[3].any()
    memory.close()
    assert late.done()
    assert (pages[3] == 5).all()


def test_a_failed_copy_ends_the_pools_future_with_its_error() -> None:
    class Broken:
        def run(self) -> None:
            raise RuntimeError("bus error")

    with PoolMemory.allocate(Layout(TINY, "page_first", 3), "cpu_async", count=2) as memory:
        last = memory.views[-1]
        future = memory.copy_async(lambda views: [Broken()] if views is last else [])
        with pytest.raises(RuntimeError, match="bus error"):
            future.result()
        copy_pages(memory, [1], [2]).result()


def test_cpu_copies_are_done_on_return_and_on_the_calling_thread(make_pool: MakePool) -> None:
    threads: list[str] = []

    class Noted:
        def run(self) -> None:
            threads.append(threading.current_thread().name)

    memory = make_pool("tiny", device="cpu")
    assert memory.copy_async(lambda _: [Noted()]).done()
    assert threads == [threading.current_thread().name]


def test_handles_say_what_to_map(make_pool: MakePool) -> None:
    for device in ("cpu", "cpu_async"):
        memory = make_pool("tiny", device=device, count=2)
        handles = memory.export()
        assert [(handle.kind, handle.nbytes) for handle in handles] == [(device, memory.layout.nbytes)] * 2
        for handle, views in zip(handles, memory.views, strict=True):
            assert handle.fd is not None
            assert torch.equal(map_buffer(handle.fd, handle.nbytes), views.buffer)
    with PoolMemory.allocate(Layout(load_geometry("glm-5.3"), "page_first", 16_384), "meta") as memory:
        (handle,) = memory.export()
        assert (handle.kind, handle.nbytes, handle.fd) == ("meta", 16_385 * 3_452_160, None)
