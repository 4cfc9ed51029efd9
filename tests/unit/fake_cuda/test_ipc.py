"""Memory of another process: opened by handle, counted, and kept as long as somebody has it open."""

import ctypes

import pytest
from cuda.bindings import runtime as cuda

from tests.fake_cuda.control import FakeGpus
from tests.unit.fake_cuda.calls import device_bytes, error, ok, stream, violated
from tests.unit.fake_cuda.other_process import OtherProcess

MIB = 1 << 20
LAZY = cuda.cudaIpcMemLazyEnablePeerAccess


def named(raw: str) -> cuda.cudaIpcMemHandle_t:
    handle = cuda.cudaIpcMemHandle_t()
    ctypes.memmove(handle.getPtr(), bytes.fromhex(raw), 64)
    return handle


def exported(address: int) -> str:
    handle = ok(cuda.cudaIpcGetMemHandle(address))  # its bytes live as long as it does
    return ctypes.string_at(handle.getPtr(), 64).hex()


def free() -> int:
    return int(ok(cuda.cudaMemGetInfo())[0])


def test_both_processes_see_the_same_bytes(fake_gpus: FakeGpus) -> None:
    address = ok(cuda.cudaMalloc(MIB))
    raw = exported(address)
    with OtherProcess(fake_gpus) as other:
        opened = other.ok("cudaIpcOpenMemHandle", raw, LAZY)
        ok(cuda.cudaMemset(address, 3, MIB))
        ok(cuda.cudaDeviceSynchronize())
        assert other.ok("read", opened + MIB - 4, 4) == "03030303"
        other.ok("cudaMemset", opened, 4, 8)
        other.ok("cudaDeviceSynchronize")
        assert device_bytes(address, 9) == b"\4" * 8 + b"\3"
        other.ok("cudaIpcCloseMemHandle", opened)
    ok(cuda.cudaFree(address))


def test_opening_twice_is_counted(fake_gpus: FakeGpus) -> None:
    with OtherProcess(fake_gpus) as other:
        theirs = other.ok("cudaMalloc", MIB)
        handle = named(other.ok("cudaIpcGetMemHandle", theirs))
        address = ok(cuda.cudaIpcOpenMemHandle(handle, LAZY))
        assert ok(cuda.cudaIpcOpenMemHandle(handle, LAZY)) == address
        ok(cuda.cudaIpcCloseMemHandle(address))
        ok(cuda.cudaMemset(address, 0, MIB))
        ok(cuda.cudaDeviceSynchronize())
        ok(cuda.cudaIpcCloseMemHandle(address))
        assert error(cuda.cudaIpcCloseMemHandle(address)) == "cudaErrorInvalidValue"
        violated(fake_gpus, "cudaIpcCloseMemHandle", "closed before")
        assert error(cuda.cudaMemset(address, 0, MIB)) == "cudaErrorInvalidValue"
        violated(fake_gpus, "was closed")
        other.ok("cudaFree", theirs)


def test_the_exporter_cannot_open_its_own_handle(fake_gpus: FakeGpus) -> None:
    address = ok(cuda.cudaMalloc(MIB))
    handle = ok(cuda.cudaIpcGetMemHandle(address))
    assert error(cuda.cudaIpcOpenMemHandle(handle, LAZY)) == "cudaErrorDeviceUninitialized"
    ok(cuda.cudaFree(address))
    assert error(cuda.cudaIpcOpenMemHandle(handle, LAZY)) == "cudaErrorInvalidResourceHandle"


def test_a_handle_that_is_none_is_refused(fake_gpus: FakeGpus) -> None:
    assert error(cuda.cudaIpcOpenMemHandle(cuda.cudaIpcMemHandle_t(), LAZY)) == "cudaErrorInvalidResourceHandle"
    with pytest.raises(TypeError):
        cuda.cudaIpcOpenMemHandle(bytes(64), LAZY)
    violated(fake_gpus, "cudaIpcOpenMemHandle")


def test_a_handle_of_the_middle_of_an_allocation_is_seen(fake_gpus: FakeGpus) -> None:
    address = ok(cuda.cudaMalloc(MIB))
    assert error(cuda.cudaIpcGetMemHandle(address + 1)) == "cudaErrorInvalidValue"
    violated(fake_gpus, "cudaIpcGetMemHandle")
    ok(cuda.cudaFree(address))


def test_a_killed_exporters_memory_stays_until_it_is_closed(fake_gpus: FakeGpus) -> None:
    with OtherProcess(fake_gpus) as other:
        before = free()
        theirs = other.ok("cudaMalloc", 4 * MIB)
        other.ok("cudaMemset", theirs, 9, 4 * MIB)
        other.ok("cudaDeviceSynchronize")
        handle = named(other.ok("cudaIpcGetMemHandle", theirs))
        address = ok(cuda.cudaIpcOpenMemHandle(handle, LAZY))
        other.kill()
    assert free() == before - 4 * MIB
    assert device_bytes(address, 4) == b"\t\t\t\t"
    assert error(cuda.cudaIpcOpenMemHandle(handle, LAZY)) == "cudaErrorInvalidResourceHandle"
    ok(cuda.cudaIpcCloseMemHandle(address))
    assert free() == before


def test_a_killed_importer_holds_nothing(fake_gpus: FakeGpus) -> None:
    before = free()
    address = ok(cuda.cudaMalloc(4 * MIB))
    raw = exported(address)
    with OtherProcess(fake_gpus) as other:
        other.ok("cudaIpcOpenMemHandle", raw, LAZY)
        other.kill()
    ok(cuda.cudaFree(address))
    assert free() == before


def test_freeing_what_another_process_has_open_is_seen(fake_gpus: FakeGpus) -> None:
    before = free()
    address = ok(cuda.cudaMalloc(4 * MIB))
    raw = exported(address)
    with OtherProcess(fake_gpus) as other:
        opened = other.ok("cudaIpcOpenMemHandle", raw, LAZY)
        ok(cuda.cudaFree(address))
        violated(fake_gpus, "cudaFree", f"process {other.pid} still has")
        assert free() == before - 4 * MIB
        other.ok("cudaIpcCloseMemHandle", opened)
    assert free() == before


def test_closing_under_a_stream_is_seen(fake_gpus: FakeGpus) -> None:
    with OtherProcess(fake_gpus) as other:
        theirs = other.ok("cudaMalloc", MIB)
        address = ok(cuda.cudaIpcOpenMemHandle(named(other.ok("cudaIpcGetMemHandle", theirs)), LAZY))
        queue = stream()
        with fake_gpus.paused():
            ok(cuda.cudaMemsetAsync(address, 0, MIB, queue))
            ok(cuda.cudaIpcCloseMemHandle(address))
            violated(fake_gpus, "cudaIpcCloseMemHandle", "still uses")
        assert error(cuda.cudaStreamSynchronize(queue)) == "cudaErrorIllegalAddress"
        violated(fake_gpus, "when it ran", "closed")
        other.ok("cudaFree", theirs)


def test_a_handle_left_open_is_a_leak(fake_gpus: FakeGpus) -> None:
    address = ok(cuda.cudaMalloc(MIB))
    raw = exported(address)
    with OtherProcess(fake_gpus) as other:
        other.ok("cudaIpcOpenMemHandle", raw, LAZY)
    (leak,) = fake_gpus.leaks()
    assert "never closed" in leak
    fake_gpus.forgive()
    ok(cuda.cudaFree(address))


def test_devices_are_renumbered_by_what_is_visible(fake_gpus: FakeGpus) -> None:
    ok(cuda.cudaSetDevice(1))
    address = ok(cuda.cudaMalloc(MIB))
    raw = exported(address)
    with OtherProcess(fake_gpus, visible=fake_gpus.uuids[1]) as other:
        assert other.ok("cudaGetDeviceCount") == 1
        other.ok("cudaIpcCloseMemHandle", other.ok("cudaIpcOpenMemHandle", raw, LAZY))
    with OtherProcess(fake_gpus, visible="0") as other:
        assert other.call("cudaIpcOpenMemHandle", raw, LAZY) == ["cudaErrorInvalidDevice", None]
    with OtherProcess(fake_gpus, visible="1,0") as other:
        other.ok("cudaIpcCloseMemHandle", other.ok("cudaIpcOpenMemHandle", raw, LAZY))
        other.ok("cudaSetDevice", 1)
        other.ok("cudaIpcCloseMemHandle", other.ok("cudaIpcOpenMemHandle", raw, LAZY))
        violated(fake_gpus, "another device")
    ok(cuda.cudaFree(address))
