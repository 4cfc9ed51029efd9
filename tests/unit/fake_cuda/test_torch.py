"""Torch on the fake: views of device memory, and work on its streams."""

import pytest
import torch
from cuda.bindings import runtime as cuda

from tests.fake_cuda.control import FakeGpus
from tests.unit.fake_cuda.calls import device_bytes, ok, stream, violated


class OnDevice:
    """What has a __cuda_array_interface__."""

    def __init__(self, address: int, count: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": (count,),
            "typestr": "|u1",
            "strides": None,
            "version": 3,
        }


def test_a_view_is_the_memory(fake_gpus: FakeGpus) -> None:
    ok(cuda.cudaSetDevice(1))
    address = ok(cuda.cudaMalloc(100))
    view = torch.as_tensor(OnDevice(address, 100), device="cuda:1")
    view[3:5] = 7
    assert device_bytes(address, 6) == b"\xa5\xa5\xa5\7\7\xa5"
    ok(cuda.cudaMemset(address, 1, 100))
    ok(cuda.cudaDeviceSynchronize())
    assert view.tolist() == [1] * 100
    ok(cuda.cudaFree(address))


def test_what_has_no_such_interface_is_torchs(fake_gpus: FakeGpus) -> None:
    ok(cuda.cudaMemGetInfo())
    assert torch.as_tensor([1, 2], dtype=torch.int64).tolist() == [1, 2]


@pytest.mark.parametrize(("count", "device"), [(101, "cuda:0"), (100, "cuda:1"), (100, None)])
def test_a_view_of_other_memory_or_on_another_device_is_seen(
    fake_gpus: FakeGpus, count: int, device: str | None
) -> None:
    address = ok(cuda.cudaMalloc(100))
    with pytest.raises(RuntimeError, match="CUDA error"):
        torch.as_tensor(OnDevice(address, count), device=device)
    violated(fake_gpus, "torch.as_tensor")
    ok(cuda.cudaFree(address))


def test_torchs_work_comes_behind_the_streams(fake_gpus: FakeGpus) -> None:
    ok(cuda.cudaSetDevice(1))
    address, queue = ok(cuda.cudaMalloc(100)), stream()
    view = torch.as_tensor(OnDevice(address, 100), device="cuda:1")
    ok(cuda.cudaMemsetAsync(address, 1, 100, queue))
    ok(cuda.cudaSetDevice(0))
    with torch.cuda.stream(torch.cuda.ExternalStream(int(queue), device=torch.device("cuda", 1))):
        assert ok(cuda.cudaGetDevice()) == 1
        view += 1
    assert ok(cuda.cudaGetDevice()) == 0
    assert set(device_bytes(address, 100)) == {2}
    ok(cuda.cudaStreamDestroy(queue))
    ok(cuda.cudaFree(address))


def test_a_device_is_current_inside(fake_gpus: FakeGpus) -> None:
    with torch.cuda.device(1):
        assert ok(cuda.cudaGetDevice()) == 1
        with torch.cuda.device("cuda:0"):
            assert ok(cuda.cudaGetDevice()) == 0
        assert ok(cuda.cudaGetDevice()) == 1
    assert ok(cuda.cudaGetDevice()) == 0


def test_torch_tells_of_a_failed_device(fake_gpus: FakeGpus) -> None:
    queue = stream()
    fake_gpus.fail("torch.cuda.stream", "cudaErrorLaunchFailure", sticky=True)
    with (
        pytest.raises(RuntimeError, match="cudaErrorLaunchFailure"),
        torch.cuda.stream(torch.cuda.ExternalStream(int(queue))),
    ):
        pass
    assert cuda.cudaStreamQuery(queue) == (cuda.cudaError_t.cudaErrorLaunchFailure,)


def test_work_on_what_is_no_stream_is_seen(fake_gpus: FakeGpus) -> None:
    ok(cuda.cudaMemGetInfo())
    with (
        pytest.raises(RuntimeError, match="cudaErrorInvalidResourceHandle"),
        torch.cuda.stream(torch.cuda.ExternalStream(12345)),
    ):
        pass
    violated(fake_gpus, "torch.cuda.stream")
