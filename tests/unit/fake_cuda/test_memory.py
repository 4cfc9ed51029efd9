"""Device memory: garbage at first, accounted for across processes, and every wrong use of it seen."""

import pytest
from cuda.bindings import runtime as cuda
from fake_gpu import holder

from tests.fake_cuda.control import FakeGpus
from tests.fake_cuda.plugin import MakeFakeGpus
from tests.unit.fake_cuda.calls import DEFAULT, device_bytes, error, host, ok, violated
from tests.unit.fake_cuda.other_process import OtherProcess

MIB = 1 << 20


def free() -> int:
    return int(ok(cuda.cudaMemGetInfo())[0])


def test_fresh_memory_is_garbage_and_its_size_is_accounted_in_granules(fake_gpus: FakeGpus) -> None:
    before, total = ok(cuda.cudaMemGetInfo())
    assert before == total
    address = ok(cuda.cudaMalloc(3 * MIB))
    assert set(device_bytes(address, 3 * MIB)) == {0xA5}
    assert before - free() == 4 * MIB
    ok(cuda.cudaSetDevice(1))
    assert free() == total
    ok(cuda.cudaFree(address))
    ok(cuda.cudaSetDevice(0))
    assert free() == total


def test_two_processes_share_the_memory_of_a_gpu(make_fake_gpus: MakeFakeGpus) -> None:
    gpus = make_fake_gpus(memory=64 * MIB)
    with OtherProcess(gpus) as other:
        theirs = other.ok("cudaMalloc", 40 * MIB)
        assert free() == 24 * MIB
        assert error(cuda.cudaMalloc(25 * MIB)) == "cudaErrorMemoryAllocation"
        address = ok(cuda.cudaMalloc(24 * MIB))
        other.ok("cudaFree", theirs)
        assert free() == 40 * MIB
        ok(cuda.cudaFree(address))


def test_the_memory_of_a_killed_process_comes_back(fake_gpus: FakeGpus) -> None:
    with OtherProcess(fake_gpus) as other:
        before = free()
        other.ok("cudaMalloc", 10 * MIB)
        assert free() == before - 10 * MIB
        other.kill()
        assert free() == before
    assert fake_gpus.leaks() == []


def test_a_process_is_not_taken_for_another_of_its_number() -> None:
    pid, start = holder.own_name().split(".")
    assert holder.alive(f"{pid}.{start}")
    assert not holder.alive(f"{pid}.{int(start) - 1}")


def test_a_double_free_is_seen(fake_gpus: FakeGpus) -> None:
    address = ok(cuda.cudaMalloc(100))
    ok(cuda.cudaFree(address))
    assert error(cuda.cudaFree(address)) == "cudaErrorInvalidValue"
    violated(fake_gpus, "cudaFree", "freed before", "test_memory.py")


@pytest.mark.parametrize("offset", [1, 1 << 40])
def test_freeing_what_is_no_start_of_an_allocation_is_seen(fake_gpus: FakeGpus, offset: int) -> None:
    address = ok(cuda.cudaMalloc(100))
    assert error(cuda.cudaFree(address + offset)) == "cudaErrorInvalidValue"
    violated(fake_gpus, "cudaFree")
    ok(cuda.cudaFree(address))


def test_a_use_after_free_is_seen_and_reads_poison(fake_gpus: FakeGpus) -> None:
    address = ok(cuda.cudaMalloc(100))
    ok(cuda.cudaFree(address))
    assert error(cuda.cudaMemset(address, 0, 10)) == "cudaErrorInvalidValue"
    violated(fake_gpus, "cudaMemset", "was freed")
    assert error(cuda.cudaMemcpy(host(4096), address, 100, DEFAULT)) == "cudaErrorInvalidValue"
    violated(fake_gpus, "cudaMemcpy", "was freed")
    assert device_bytes(address, 100) == b"\xdb" * 100


@pytest.mark.parametrize(("start", "size"), [(0, 101), (99, 2), (-1, 2)])
def test_a_range_beyond_its_allocation_is_seen(fake_gpus: FakeGpus, start: int, size: int) -> None:
    address = ok(cuda.cudaMalloc(100))
    assert error(cuda.cudaMemset(address + start, 0, size)) == "cudaErrorInvalidValue"
    violated(fake_gpus, "cudaMemset")
    ok(cuda.cudaFree(address))


@pytest.mark.parametrize("size", ["100", None])
def test_wrong_types_raise_and_are_seen(fake_gpus: FakeGpus, size: object) -> None:
    with pytest.raises(TypeError):
        cuda.cudaMalloc(size)
    violated(fake_gpus, "cudaMalloc")


def test_what_pointers_point_to(fake_gpus: FakeGpus) -> None:
    ok(cuda.cudaSetDevice(1))
    address = ok(cuda.cudaMalloc(100))
    buffer = host(4096)
    ok(cuda.cudaHostRegister(buffer, 4096, 0))
    types = cuda.cudaMemoryType
    seen = [ok(cuda.cudaPointerGetAttributes(pointer)) for pointer in (address + 50, buffer, host(4096))]
    assert [attributes.type for attributes in seen] == [
        types.cudaMemoryTypeDevice,
        types.cudaMemoryTypeHost,
        types.cudaMemoryTypeUnregistered,
    ]
    assert seen[0].device == 1
    ok(cuda.cudaHostUnregister(buffer))
    ok(cuda.cudaFree(address))


def test_what_a_program_leaves_behind_is_told(fake_gpus: FakeGpus) -> None:
    with OtherProcess(fake_gpus) as other:
        other.ok("cudaMalloc", 100)
        other.ok("cudaStreamCreateWithFlags", 1)
        other.ok("cudaEventCreateWithFlags", 2)
    assert [f"pid {other.pid}" in leak for leak in fake_gpus.leaks()] == [True] * 3
    fake_gpus.forgive()


def test_leaving_tells_what_this_process_leaks(fake_gpus: FakeGpus) -> None:
    buffer = host(4096)
    ok(cuda.cudaHostRegister(buffer, 4096, 0))
    ok(cuda.cudaMalloc(100))
    fake_gpus.leave()
    assert len(fake_gpus.leaks()) == 2
    fake_gpus.forgive()
    assert free() == ok(cuda.cudaMemGetInfo())[1]
