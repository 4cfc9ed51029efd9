"""GPUs by UUID: whatever this process numbers them, and only such as can be shared safely."""

import pytest

from radixd.gpu_pool.cuda.gpu import find_gpus, visible_gpus
from radixd.gpu_pool.device import DeviceMemoryError
from tests.fake_cuda.control import GIB, FakeGpus
from tests.fake_cuda.plugin import MakeFakeGpus


def test_gpus_are_what_nvidia_smi_calls_them(make_fake_gpus: MakeFakeGpus) -> None:
    gpus = make_fake_gpus(3)
    found = visible_gpus()
    assert [gpu.uuid for gpu in found] == gpus.uuids
    assert [gpu.ordinal for gpu in found] == [0, 1, 2]
    assert all(gpu.name and gpu.total_bytes == GIB for gpu in found)
    assert found[0].free_bytes() <= GIB


def test_a_uuid_names_the_same_gpu_whatever_its_number_here(
    make_fake_gpus: MakeFakeGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = make_fake_gpus(3)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    assert [(gpu.uuid, gpu.ordinal) for gpu in visible_gpus()] == [(gpus.uuids[2], 0), (gpus.uuids[0], 1)]
    (found,) = find_gpus([gpus.uuids[0]], 1)
    assert (found.uuid, found.ordinal) == (gpus.uuids[0], 1)
    with pytest.raises(DeviceMemoryError, match=f"GPU '{gpus.uuids[1]}' is no GPU of this process .*VISIBLE_DEVICES"):
        find_gpus([gpus.uuids[1]], 1)


def test_names_are_uuids_or_beginnings_that_fit_one_gpu_and_give_the_order(make_fake_gpus: MakeFakeGpus) -> None:
    gpus = make_fake_gpus(3)
    names = [gpus.uuids[2], gpus.uuids[0][:20]]
    assert [gpu.uuid for gpu in find_gpus(names, 2)] == [gpus.uuids[2], gpus.uuids[0]]
    assert [gpu.uuid for gpu in find_gpus((), 2)] == gpus.uuids[:2]
    for wrong, count, problem in [
        (["GPU-"], 1, "'GPU-' fits several GPUs"),
        ([""], 1, "'' is no GPU"),
        (["0"], 1, "'0' is no GPU of this process .*: use a UUID as nvidia-smi -L prints it"),
        ([gpus.uuids[0]] * 2, 2, "named twice"),
        ([gpus.uuids[0]], 2, "2 GPUs are needed, 1 are named .*name one for each rank"),
        ((), 4, "4 GPUs are needed, 3 are visible .*CUDA_VISIBLE_DEVICES"),
    ]:
        with pytest.raises(DeviceMemoryError, match=problem):
            find_gpus(wrong, count)


def test_a_machine_without_a_driver_says_so() -> None:
    with pytest.raises(DeviceMemoryError, match=r"cudaErrorInsufficientDriver .*cuda-bindings<13.*check the driver"):
        visible_gpus()


@pytest.mark.parametrize(
    ("attributes", "problem"),
    [
        ({"cudaDevAttrComputeMode": 3}, "cudaComputeModeExclusiveProcess.*nvidia-smi -i GPU-.* -c DEFAULT"),
        ({"cudaDevAttrComputeMode": 2}, "cudaComputeModeProhibited"),
        ({"cudaDevAttrMpsEnabled": 1}, "shared by MPS.*nvidia-cuda-mps-control"),
    ],
)
def test_gpus_that_cannot_be_shared_safely_are_refused(
    make_fake_gpus: MakeFakeGpus, attributes: dict[str, int], problem: str
) -> None:
    gpus = make_fake_gpus(2)
    gpus.set_attributes(1, **attributes)
    assert len(find_gpus((), 1)) == 1
    with pytest.raises(DeviceMemoryError, match=f"{gpus.uuids[1]}.*{problem}"):
        find_gpus((), 2)


def test_a_driver_older_than_the_question_is_judged_by_the_environment(
    fake_gpus: FakeGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_gpus.fail("cudaDeviceGetAttribute", "cudaErrorInvalidValue", nth=2)
    assert find_gpus((), 1)
    fake_gpus.fail("cudaDeviceGetAttribute", "cudaErrorInvalidValue", nth=2)
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
    with pytest.raises(DeviceMemoryError, match="shared by MPS"):
        find_gpus((), 1)


def test_a_gpu_that_has_failed_hides_no_other(fake_gpus: FakeGpus) -> None:
    fake_gpus.lose(0)
    assert [gpu.uuid for gpu in visible_gpus()] == fake_gpus.uuids[1:]
    with pytest.raises(DeviceMemoryError, match=fake_gpus.uuids[0]):
        find_gpus(fake_gpus.uuids[:1], 1)


@pytest.mark.parametrize("call", ["cudaGetDeviceCount", "cudaGetDeviceProperties", "cudaDeviceGetAttribute"])
def test_a_call_that_fails_is_named(fake_gpus: FakeGpus, call: str) -> None:
    fault = fake_gpus.fail(call, "cudaErrorInitializationError", nth=None)
    with pytest.raises(DeviceMemoryError, match=rf"{call}: cudaErrorInitializationError \(initialization error\)"):
        find_gpus((), 1)
    fake_gpus.mend(fault)
    assert len(find_gpus((), 1)) == 1


def test_free_memory_that_cannot_be_asked_for_is_an_error(fake_gpus: FakeGpus) -> None:
    (gpu,) = find_gpus((), 1)
    fake_gpus.fail("cudaMemGetInfo", "cudaErrorUnknown")
    with pytest.raises(Exception, match="cudaMemGetInfo: cudaErrorUnknown") as failed:
        gpu.free_bytes()
    assert failed.value.sticky
