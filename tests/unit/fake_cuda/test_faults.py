"""What a test plants: errors of any call, errors that stay, GPUs that hang or are gone."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cuda.bindings import runtime as cuda

from tests.fake_cuda.control import FakeGpus
from tests.fake_cuda.plugin import MakeFakeGpus, _check
from tests.unit.fake_cuda.calls import device_bytes, error, ok, stream
from tests.unit.fake_cuda.other_process import OtherProcess


def test_the_nth_call_fails_and_no_other(fake_gpus: FakeGpus) -> None:
    fake_gpus.fail("cudaMalloc", "cudaErrorMemoryAllocation", nth=2)
    first = ok(cuda.cudaMalloc(10))
    assert error(cuda.cudaMalloc(10)) == "cudaErrorMemoryAllocation"
    last = ok(cuda.cudaMalloc(10))
    assert cuda.cudaPeekAtLastError() == (cuda.cudaError_t.cudaErrorMemoryAllocation,)
    assert cuda.cudaGetLastError() == (cuda.cudaError_t.cudaErrorMemoryAllocation,)
    assert cuda.cudaGetLastError() == (cuda.cudaError_t.cudaSuccess,)
    for address in (first, last):
        ok(cuda.cudaFree(address))


def test_every_call_fails_until_it_is_mended(fake_gpus: FakeGpus) -> None:
    fault = fake_gpus.fail("cudaMemGetInfo", "cudaErrorNotSupported", nth=None)
    assert [error(cuda.cudaMemGetInfo()) for _ in range(3)] == ["cudaErrorNotSupported"] * 3
    fake_gpus.mend(fault)
    ok(cuda.cudaMemGetInfo())


def test_a_sticky_error_breaks_that_device_in_that_process(fake_gpus: FakeGpus) -> None:
    address, queue = ok(cuda.cudaMalloc(10)), stream()
    fake_gpus.fail("cudaMemsetAsync", "cudaErrorIllegalAddress", sticky=True, pid=os.getpid())
    assert error(cuda.cudaMemsetAsync(address, 0, 10, queue)) == "cudaErrorIllegalAddress"
    assert error(cuda.cudaStreamSynchronize(queue)) == "cudaErrorIllegalAddress"
    assert error(cuda.cudaFree(address)) == "cudaErrorIllegalAddress"
    assert cuda.cudaGetLastError() == cuda.cudaGetLastError() == (cuda.cudaError_t.cudaErrorIllegalAddress,)
    ok(cuda.cudaSetDevice(1))
    ok(cuda.cudaFree(ok(cuda.cudaMalloc(10))))
    with OtherProcess(fake_gpus) as other:
        other.ok("cudaFree", other.ok("cudaMalloc", 10))


def test_a_fault_meets_a_process_that_runs_already(fake_gpus: FakeGpus) -> None:
    with OtherProcess(fake_gpus) as other:
        other.ok("cudaMemGetInfo")
        fake_gpus.fail("cudaMemGetInfo", "cudaErrorUnknown", pid=other.pid)
        assert other.call("cudaMemGetInfo") == ["cudaErrorUnknown", None, None]
        ok(cuda.cudaMemGetInfo())


def test_work_that_fails_as_it_runs_breaks_the_device(fake_gpus: FakeGpus) -> None:
    address, queue = ok(cuda.cudaMalloc(10)), stream()
    event = ok(cuda.cudaEventCreateWithFlags(2))
    fake_gpus.fail("stream", "cudaErrorECCUncorrectable")
    ok(cuda.cudaMemsetAsync(address, 0, 10, queue))
    cuda.cudaEventRecord(event, queue)
    assert error(cuda.cudaEventSynchronize(event)) == "cudaErrorECCUncorrectable"
    assert error(cuda.cudaStreamQuery(queue)) == "cudaErrorECCUncorrectable"
    assert set(device_bytes(address, 10)) == {0xA5}


def test_a_lost_gpu_fails_every_call_and_ends_every_wait(fake_gpus: FakeGpus) -> None:
    address, queue = ok(cuda.cudaMalloc(10)), stream()
    fake_gpus.pause(0)
    ok(cuda.cudaMemsetAsync(address, 0, 10, queue))
    with ThreadPoolExecutor(1) as thread, OtherProcess(fake_gpus) as other:
        waiting = thread.submit(cuda.cudaStreamSynchronize, queue)
        fake_gpus.lose(0)
        assert error(waiting.result()) == "cudaErrorUnknown"
        assert error(cuda.cudaMalloc(10)) == "cudaErrorUnknown"
        assert error(cuda.cudaSetDevice(0)) == "cudaErrorUnknown"
        assert other.call("cudaMemGetInfo") == ["cudaErrorUnknown", None, None]
        other.ok("cudaSetDevice", 1)
        other.ok("cudaMemGetInfo")


def test_a_gpu_that_hangs_goes_on_when_it_is_resumed(fake_gpus: FakeGpus) -> None:
    with OtherProcess(fake_gpus) as other:
        address = other.ok("cudaMalloc", 10)
        queue = other.ok("cudaStreamCreateWithFlags", 1)
        fake_gpus.pause(0)
        other.ok("cudaMemsetAsync", address, 0, 10, queue)
        assert other.call("cudaStreamQuery", queue) == ["cudaErrorNotReady"]
        fake_gpus.resume(0)
        other.ok("cudaStreamSynchronize", queue)
        other.ok("cudaStreamDestroy", queue)
        other.ok("cudaFree", address)


def test_without_a_machine_there_is_no_driver() -> None:
    assert error(cuda.cudaGetDeviceCount()) == "cudaErrorInsufficientDriver"
    assert cuda.cudaDriverGetVersion() == (cuda.cudaError_t.cudaSuccess, 0)


def test_no_gpu_visible(fake_gpus: FakeGpus) -> None:
    with OtherProcess(fake_gpus, visible="") as other:
        assert other.call("cudaGetDeviceCount") == ["cudaErrorNoDevice", None]


def test_a_forked_child_cannot_go_on(fake_gpus: FakeGpus) -> None:
    ok(cuda.cudaMemGetInfo())
    child = os.fork()
    if child == 0:
        os._exit(int(cuda.cudaMemGetInfo()[0]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == cuda.cudaError_t.cudaErrorInitializationError


def test_attributes_and_names_of_a_device(fake_gpus: FakeGpus) -> None:
    mps = cuda.cudaDeviceAttr.cudaDevAttrMpsEnabled
    assert ok(cuda.cudaDeviceGetAttribute(mps, 1)) == 0
    fake_gpus.set_attributes(1, cudaDevAttrMpsEnabled=1)
    assert ok(cuda.cudaDeviceGetAttribute(mps, 1)) == 1
    assert ok(cuda.cudaDeviceGetAttribute(mps, 0)) == 0
    properties = ok(cuda.cudaGetDeviceProperties(1))
    assert properties.uuid.bytes.hex() == fake_gpus.uuids[1].removeprefix("GPU-").replace("-", "")
    assert ok(cuda.cudaDeviceGetByPCIBusId(ok(cuda.cudaDeviceGetPCIBusId(16, 1)))) == 1
    assert error(cuda.cudaGetDeviceProperties(2)) == "cudaErrorInvalidDevice"
    assert ok(cuda.cudaDeviceCanAccessPeer(0, 1)) == 1
    assert ok(cuda.cudaDeviceCanAccessPeer(1, 1)) == 0
    ok(cuda.cudaDeviceEnablePeerAccess(1, 0))
    assert error(cuda.cudaDeviceEnablePeerAccess(1, 0)) == "cudaErrorPeerAccessAlreadyEnabled"


def test_errors_have_names_and_texts() -> None:
    failed = cuda.cudaError_t.cudaErrorMemoryAllocation
    assert cuda.cudaGetErrorName(failed) == (cuda.cudaError_t.cudaSuccess, b"cudaErrorMemoryAllocation")
    assert cuda.cudaGetErrorString(failed) == (cuda.cudaError_t.cudaSuccess, b"out of memory")


def test_a_test_whose_program_misused_cuda_fails(make_fake_gpus: MakeFakeGpus) -> None:
    gpus = make_fake_gpus()
    cuda.cudaFree(16)
    ok(cuda.cudaMalloc(10))
    with pytest.raises(pytest.fail.Exception, match=r"(?s)never allocated.*never freed"):
        _check(gpus)
    gpus.forgive()


def test_the_directory_goes_with_the_gpus() -> None:
    with FakeGpus() as gpus:
        root = Path(os.environ["RADIXD_FAKE_CUDA"])
        assert root == gpus.root
        assert root.is_dir()
    assert "RADIXD_FAKE_CUDA" not in os.environ
    assert not root.exists()
