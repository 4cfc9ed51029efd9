"""The CUDA device on fake GPUs: memory that is zero and shared, copies that are late, and failures that are closed."""

import threading
from collections.abc import Sequence

import pytest
import torch

from radixd.gpu_pool.cuda.device import CudaDevice
from radixd.gpu_pool.cuda.gpu import find_gpus
from radixd.gpu_pool.cuda.runtime import CudaError
from radixd.gpu_pool.device import DeviceFull, DeviceLost, DeviceMemoryError
from radixd.gpu_pool.host import HostPool
from radixd.gpu_pool.layout import Layout, LayoutKind
from radixd.gpu_pool.memory import PoolMemory
from radixd.gpu_pool.move import copy_pages, move_tokens
from radixd.gpu_pool.peer_copy import import_pages
from radixd.gpu_pool.tier_copy import load_pages, save_pages
from tests.fake_cuda.control import GIB, FakeGpus
from tests.fake_cuda.plugin import MakeFakeGpus
from tests.unit.cuda.conftest import TINY, OpenPool

MIB = 2**20


def _pages(memory: PoolMemory, pages: Sequence[int], rank: int = 0) -> list[bytes]:
    """Each page's bytes, in the order of a page_first page."""
    layers = [rows[list(pages)].flatten(1) for rows in memory.views[rank].layer_rows]
    return [bytes(page.tolist()) for page in torch.cat(layers, dim=1)]


def _host_pages(host: HostPool, pages: Sequence[int]) -> list[bytes]:
    return [host.pages[page].tobytes() for page in pages]


# --- memory


def test_memory_is_zero_at_first_and_handed_out_by_uuid(fake_gpus: FakeGpus) -> None:
    (_, gpu) = find_gpus((), 2)
    device = CudaDevice(5 * MIB + 1, gpu)
    assert device.buffer.numel() == 5 * MIB + 1
    assert not device.buffer.any()
    handle = device.export()
    assert (handle.kind, handle.nbytes, handle.fd) == ("cuda", 5 * MIB + 1, None)
    assert handle.gpu is not None
    assert (handle.gpu.uuid, handle.gpu.offset, len(handle.gpu.ipc)) == (fake_gpus.uuids[1], 0, 64)
    device.close()


def test_memory_that_others_hold_is_refused_saying_how_much_is_free(fake_gpus: FakeGpus) -> None:
    (gpu,) = find_gpus((), 1)
    first = CudaDevice(GIB // 2 + MIB, gpu)
    with pytest.raises(DeviceFull, match=rf"{gpu.uuid} has {GIB // 2 - 2 * MIB} of {GIB} bytes free, {GIB // 2} are"):
        CudaDevice(GIB // 2, gpu)
    first.close()
    CudaDevice(GIB // 2, gpu).close()


def test_memory_is_an_allocation_that_the_driver_shares_with_nothing_else(
    fake_gpus: FakeGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Smaller ones are put together in 2 MiB, all of which an IPC handle would open."""
    from radixd.gpu_pool.cuda import device

    asked: list[int] = []
    allocate = device.cudart.cudaMalloc

    def cudaMalloc(size: int) -> tuple[object, int]:  # noqa: N802
        asked.append(size)
        return allocate(size)

    monkeypatch.setattr(device.cudart, "cudaMalloc", cudaMalloc)
    for nbytes in (1, 2 * MIB, 2 * MIB + 1):
        CudaDevice(nbytes, find_gpus((), 1)[0]).close()
    assert asked == [2 * MIB, 2 * MIB, 4 * MIB]


def test_more_memory_than_a_gpu_has_is_refused_for_good(fake_gpus: FakeGpus) -> None:
    (gpu,) = find_gpus((), 1)
    with pytest.raises(DeviceMemoryError, match=rf"has {GIB} bytes in all, {GIB + 1} are needed") as refused:
        CudaDevice(GIB + 1, gpu)
    assert not isinstance(refused.value, DeviceFull)


@pytest.mark.parametrize(
    "call",
    [
        "cudaSetDevice",
        "cudaMalloc",
        "cudaMemset",
        "cudaDeviceSynchronize",
        "cudaIpcGetMemHandle",
        "cudaStreamCreateWithFlags",
        "cudaMemcpyBatchAsync",
        "cudaEventCreateWithFlags",
        "cudaEventRecord",
        "cudaEventSynchronize",
    ],
)
@pytest.mark.parametrize("sticky", [False, True])
def test_every_call_that_can_fail_at_the_start_is_named_and_leaves_nothing(
    fake_gpus: FakeGpus, call: str, sticky: bool
) -> None:
    fake_gpus.fail(call, "cudaErrorECCUncorrectable" if sticky else "cudaErrorInvalidValue", sticky=sticky, gpu=0)
    gpus = find_gpus((), 2)
    with pytest.raises(DeviceMemoryError, match=f"{gpus[0].uuid}.*{'ECCUncorrectable' if sticky else call}"):
        PoolMemory.on_gpus(Layout(TINY, "page_first", 4), gpus)
    PoolMemory.on_gpus(Layout(TINY, "page_first", 4), gpus[sticky:]).close()


def test_a_torch_without_cuda_is_named(fake_gpus: FakeGpus, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_cuda(*_: object, **__: object) -> torch.Tensor:
        raise AssertionError("Torch not compiled with CUDA enabled")

    (gpu,) = find_gpus((), 1)
    monkeypatch.setattr(torch, "as_tensor", without_cuda)
    with pytest.raises(DeviceMemoryError, match=r"torch .* cannot use the GPU .*install a CUDA build"):
        CudaDevice(MIB, gpu)


def test_a_pool_that_fits_on_some_gpus_alone_gives_all_back(fake_gpus: FakeGpus) -> None:
    gpus = find_gpus((), 2)
    taken = CudaDevice(GIB - 2 * MIB, gpus[1])
    with pytest.raises(DeviceFull, match=gpus[1].uuid):
        PoolMemory.on_gpus(Layout(TINY, "page_first", 1000), gpus)
    taken.close()
    assert gpus[0].free_bytes() == GIB


# --- copies


def test_pages_go_to_the_host_and_back_on_all_gpus(
    gpus: FakeGpus, layout: LayoutKind, open_pool: OpenPool, host: HostPool
) -> None:
    memory = open_pool(layout, count=2)
    memory.pin(host)
    saved = _pages(memory, [3, 4, 5, 9])
    others = _host_pages(host, [1, 5, 7, 9, 10, 11, 12])
    save_pages(memory, host, [3, 4, 5, 9], [2, 3, 4, 8]).result()
    assert _host_pages(host, [2, 3, 4, 8]) == saved
    assert _host_pages(host, [1, 5, 7, 9, 10, 11, 12]) == others
    load_pages(memory, host, [8, 2, 3, 4], [1, 6, 7, 8]).result()
    for rank in range(2):
        assert _pages(memory, [1, 6, 7, 8], rank) == [saved[3], *saved[:3]]


def test_moves_and_page_copies_on_the_gpu_keep_their_order(
    gpus: FakeGpus, layout: LayoutKind, open_pool: OpenPool
) -> None:
    memory = open_pool(layout, count=2)
    wanted = [_pages(memory, [1], rank) for rank in range(2)]
    with gpus.paused(0), gpus.paused(1):
        chain = [copy_pages(memory, [page], [page + 1]) for page in range(1, 12)]
        assert not any(copy.done() for copy in chain)
    for copy in chain:
        copy.result()
    for rank in range(2):
        assert _pages(memory, range(1, 13), rank) == wanted[rank] * 12
    rope = memory.views[0].region("latent", 1, "rope").view(torch.uint8)  # random bits may be NaN, which equals nothing
    token = rope[7, 9].clone()
    move_tokens(memory, [7 * 64 + 9], [8 * 64]).result()
    assert torch.equal(rope[8, 0], token)


def test_pools_of_other_gpus_are_read_on_the_target(gpus: FakeGpus, layout: LayoutKind, open_pool: OpenPool) -> None:
    both, one = open_pool("page_first", count=2), open_pool(layout)
    wanted = _pages(one, [4, 5])
    import_pages(one, [4, 5], both, [11, 2]).result()
    import_pages(one, [4], both, [3]).result()
    assert [_pages(both, [11, 2, 3], rank) for rank in range(2)] == [[*wanted, wanted[0]]] * 2


def test_gpus_that_are_not_linked_still_copy(
    fake_gpus: FakeGpus, open_pool: OpenPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from radixd.gpu_pool.cuda import device

    monkeypatch.setattr(device.cudart, "cudaDeviceCanAccessPeer", _no_access)
    source, target = open_pool(), open_pool(count=2)
    for call in ("cudaMemcpyBatchAsync", "cudaMemcpy2DAsync"):  # of which it is not known that they do
        fake_gpus.fail(call, "cudaErrorInvalidValue", nth=None, gpu=1)
    import_pages(source, [1], target, [2]).result()
    assert _pages(target, [2], 1) == _pages(source, [1])


def _no_access(device: int, peer: int) -> tuple[object, int]:
    from cuda.bindings import runtime

    return runtime.cudaError_t.cudaSuccess, 0


def test_peer_access_that_fails_is_an_error_and_one_that_is_there_is_not(
    fake_gpus: FakeGpus, open_pool: OpenPool
) -> None:
    source, target, other = open_pool(), open_pool(count=2), open_pool(count=2)
    fault = fake_gpus.fail("cudaDeviceEnablePeerAccess", "cudaErrorTooManyPeers", nth=None)
    with pytest.raises(CudaError, match="cudaErrorTooManyPeers"):
        import_pages(source, [1], target, [2])
    fake_gpus.mend(fault)
    import_pages(source, [1], target, [2]).result()
    import_pages(source, [1], other, [2]).result()
    assert _pages(other, [2], 1) == _pages(source, [1])


def test_an_import_that_a_later_rank_cannot_make_has_begun_on_no_rank(
    make_fake_gpus: MakeFakeGpus, open_pool: OpenPool
) -> None:
    gpus = make_fake_gpus(2, delay_s=0.05)
    source, target = open_pool(), open_pool(count=2)
    before = _pages(target, [2])
    gpus.fail("cudaDeviceEnablePeerAccess", "cudaErrorTooManyPeers")
    with pytest.raises(CudaError, match="cudaErrorTooManyPeers"):
        import_pages(source, [1], target, [2])
    target.probe().result()
    assert _pages(target, [2]) == before, "whoever got the page meanwhile has written to it"


def test_a_gpu_that_is_found_lost_by_an_import_is_lost(fake_gpus: FakeGpus, open_pool: OpenPool) -> None:
    source, target = open_pool(), open_pool(count=2)
    fake_gpus.lose(1)
    with pytest.raises(DeviceLost, match=fake_gpus.uuids[1]):
        import_pages(source, [1], target, [2])
    assert target.lost is not None
    assert source.lost is None


def test_a_late_copy_is_pending_and_reads_its_source_when_it_runs(
    gpus: FakeGpus, layout: LayoutKind, open_pool: OpenPool, host: HostPool
) -> None:
    memory = open_pool(layout)
    memory.pin(host)
    with gpus.paused():
        late = save_pages(memory, host, [1], [1])
        with pytest.raises(TimeoutError):
            late.result(timeout=0.03)
        assert not late.cancel()
        for rows in memory.views[0].layer_rows:
            rows[1] = 77
    late.result()
    assert (host.pages[1] == 77).all()


def test_a_pools_copy_ends_with_its_last_gpu(fake_gpus: FakeGpus, open_pool: OpenPool) -> None:
    memory = open_pool(count=2)
    with fake_gpus.paused(1):
        copy = copy_pages(memory, [1], [2])
        memory.devices[0].probe().result()
        assert not copy.done()
    copy.result()


def test_a_probe_asks_whether_the_gpu_answers(fake_gpus: FakeGpus, open_pool: OpenPool) -> None:
    memory = open_pool(count=2)
    memory.probe().result()
    with fake_gpus.paused(1):
        probe = memory.probe()
        with pytest.raises(TimeoutError):
            probe.result(timeout=0.03)
    probe.result()
    assert memory.lost is None


def test_closing_waits_for_what_was_enqueued(fake_gpus: FakeGpus, host: HostPool) -> None:
    memory = PoolMemory.on_gpus(Layout(TINY, "page_first", 12), find_gpus((), 1))
    memory.pin(host)
    memory.views[0].buffer.fill_(9)
    fake_gpus.set_delay(0.05)
    late = save_pages(memory, host, range(1, 13), range(1, 13))
    memory.close()
    assert late.done()
    assert (host.pages[1:] == 9).all()


def test_a_copy_handed_in_after_the_close_fails_at_once(fake_gpus: FakeGpus) -> None:
    memory = PoolMemory.on_gpus(Layout(TINY, "page_first", 12), find_gpus((), 1))
    (device,) = memory.devices
    memory.close()
    with pytest.raises(RuntimeError, match="-to_host is closed"):
        device.probe().result(timeout=60)
    with pytest.raises(RuntimeError, match="memory is closed"):
        memory.probe()


def test_the_host_stays_pinned_until_the_last_gpu_is_done(fake_gpus: FakeGpus, host: HostPool) -> None:
    memory = PoolMemory.on_gpus(Layout(TINY, "page_first", 12), find_gpus((), 2))
    memory.pin(host)
    fake_gpus.pause(1)
    late = load_pages(memory, host, [1], [1])
    threading.Timer(0.05, fake_gpus.resume, [1]).start()
    memory.close()
    late.result()


# --- failures


def test_what_was_enqueued_before_a_failure_is_waited_for(
    make_fake_gpus: MakeFakeGpus, open_pool: OpenPool, host: HostPool
) -> None:
    gpus = make_fake_gpus(1, batch_memcpy=False)
    memory = open_pool()
    memory.pin(host)
    saved = _pages(memory, [1])
    untouched = _host_pages(host, [3])
    gpus.fail("cudaMemcpyAsync", "cudaErrorInvalidValue", nth=2)
    with gpus.paused():
        half = save_pages(memory, host, [1, 3], [1, 3])
        with pytest.raises(TimeoutError):
            half.result(timeout=0.03)
    with pytest.raises(CudaError, match="cudaMemcpyAsync: cudaErrorInvalidValue"):
        half.result()
    assert (_host_pages(host, [1]), _host_pages(host, [3])) == (saved, untouched)
    assert memory.lost is None
    save_pages(memory, host, [3], [3]).result()


def test_a_copy_whose_end_cannot_be_marked_is_waited_for_and_fails(fake_gpus: FakeGpus, open_pool: OpenPool) -> None:
    memory = open_pool()
    wanted = _pages(memory, [1])
    for call in ("cudaEventCreateWithFlags", "cudaEventRecord"):
        fake_gpus.fail(call, "cudaErrorInvalidValue")
        with fake_gpus.paused():
            unmarked = copy_pages(memory, [1], [2])
            with pytest.raises(TimeoutError):
                unmarked.result(timeout=0.03)
        with pytest.raises(CudaError, match=call):
            unmarked.result()
        assert _pages(memory, [2]) == wanted
    assert memory.lost is None


def test_a_wait_that_fails_loses_the_gpu_for_this_pool(fake_gpus: FakeGpus, open_pool: OpenPool) -> None:
    memory = open_pool()
    fake_gpus.fail("cudaEventCreateWithFlags", "cudaErrorInvalidValue")
    fake_gpus.fail("cudaStreamSynchronize", "cudaErrorInvalidValue")
    with pytest.raises(DeviceLost, match="cudaStreamSynchronize"):
        copy_pages(memory, [1], [2]).result()
    assert memory.lost is not None
    assert fake_gpus.uuids[0] in memory.lost


def test_a_sticky_error_ends_every_copy_of_its_gpu_alone(
    gpus: FakeGpus, layout: LayoutKind, open_pool: OpenPool, host: HostPool, caplog: pytest.LogCaptureFixture
) -> None:
    hit = open_pool(layout)
    with PoolMemory.on_gpus(Layout(TINY, layout, 12), find_gpus([gpus.uuids[1]], 1)) as other:
        hit.pin(host)
        with gpus.paused(0):
            late = [save_pages(hit, host, [1], [1]), copy_pages(hit, [1], [2]), load_pages(hit, host, [3], [4])]
            gpus.fail("stream", "cudaErrorIllegalAddress", nth=None, gpu=0)
        for copy in late:
            with pytest.raises(DeviceLost, match=r"cudaErrorIllegalAddress.*restart it"):
                copy.result()
        with pytest.raises(DeviceLost):
            copy_pages(hit, [1], [2]).result()
        assert isinstance(hit.probe().exception(), DeviceLost)
        assert hit.lost is not None
        assert "cudaErrorIllegalAddress" in hit.lost
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        other.views[0].buffer.fill_(3)
        copy_pages(other, [1], [2]).result()
        assert other.lost is None


def test_a_gpu_that_disappears_is_seen_by_a_probe(fake_gpus: FakeGpus, open_pool: OpenPool) -> None:
    memory = open_pool(count=2)
    fake_gpus.lose(1)
    with pytest.raises(DeviceLost, match=rf"{fake_gpus.uuids[1]}.*cudaErrorUnknown"):
        memory.probe().result()
    assert memory.lost is not None
    assert fake_gpus.uuids[1] in memory.lost


def test_a_sticky_answer_to_an_enqueue_loses_the_gpu(fake_gpus: FakeGpus, open_pool: OpenPool) -> None:
    memory = open_pool()
    fake_gpus.fail("cudaMemcpyBatchAsync", "cudaErrorLaunchFailure")
    with pytest.raises(DeviceLost, match="cudaErrorLaunchFailure"):
        copy_pages(memory, [1], [2]).result()


def test_torchs_failure_ends_the_move_alone(fake_gpus: FakeGpus, open_pool: OpenPool) -> None:
    memory = open_pool()
    before = memory.views[0].buffer.clone()
    fake_gpus.fail("torch.cuda.stream", "cudaErrorMemoryAllocation")
    with pytest.raises(RuntimeError, match="cudaErrorMemoryAllocation"):
        move_tokens(memory, [64], [65]).result()
    assert torch.equal(memory.views[0].buffer, before)
    move_tokens(memory, [64], [65]).result()


@pytest.mark.parametrize("call", ["cudaStreamDestroy", "cudaHostUnregister", "cudaFree"])
def test_what_cannot_be_given_back_keeps_nothing_else(
    fake_gpus: FakeGpus, host: HostPool, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    memory = PoolMemory.on_gpus(Layout(TINY, "page_first", 12), find_gpus((), 2))
    memory.pin(host)
    fake_gpus.fail(call, "cudaErrorInvalidValue", gpu=0)
    memory.close()
    assert [record.getMessage() for record in caplog.records if call in record.getMessage()]
    fake_gpus.leave()
    assert len(fake_gpus.leaks()) == 1
    assert not fake_gpus.violations()
    fake_gpus.forgive()


def test_each_direction_has_a_stream_of_its_own(
    fake_gpus: FakeGpus, layout: LayoutKind, open_pool: OpenPool, host: HostPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, other = open_pool(layout), open_pool(layout)
    memory.pin(host)
    used: list[str] = []
    for name, lane in memory.devices[0]._lanes.items():  # type: ignore[attr-defined]
        monkeypatch.setattr(lane, "run", lambda enqueue, name=name, run=lane.run: used.append(name) or run(enqueue))
    for copy, direction in [
        (lambda: save_pages(memory, host, [1], [1]), "to_host"),
        (lambda: load_pages(memory, host, [1], [1]), "from_host"),
        (lambda: move_tokens(memory, [64], [65]), "on_device"),
        (lambda: copy_pages(memory, [1], [2]), "on_device"),
        (lambda: import_pages(other, [1], memory, [2]), "on_device"),
    ]:
        copy().result()
        assert used == [direction]
        used.clear()
