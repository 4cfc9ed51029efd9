"""How page copies become calls: as few as adjacency allows, none across two registrations of host memory."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from radixd.gpu_pool.cuda import copies
from radixd.gpu_pool.cuda.pinned import CHUNK_BYTES, PinnedMemory
from radixd.gpu_pool.device import DeviceMemoryError, PageCopy, page_runs
from radixd.gpu_pool.host import HostPool
from radixd.gpu_pool.layout import LayoutKind
from radixd.gpu_pool.tier_copy import save_pages
from tests.fake_cuda.control import FakeGpus
from tests.unit.cuda.conftest import OpenPool


def _spans(src: torch.Tensor, dst: torch.Tensor, pairs: list[tuple[int, int]]) -> list[list[int]]:
    sources, targets = np.array(pairs, np.int64).reshape(-1, 2).T
    rectangles = copies._rectangles(PageCopy(src, dst, page_runs(sources, targets)))
    return copies.spans_of(rectangles).tolist()


def test_pages_adjacent_at_both_ends_are_one_span() -> None:
    src, dst = torch.zeros(10, 100, dtype=torch.uint8), torch.zeros(10, 100, dtype=torch.uint8)
    a, b = src.data_ptr(), dst.data_ptr()
    assert _spans(src, dst, [(1, 4), (2, 5), (3, 6), (7, 8), (8, 7)]) == [
        [b + 400, a + 100, 300],
        [b + 800, a + 700, 100],
        [b + 700, a + 800, 100],
    ]


def test_pages_with_gaps_at_one_end_are_a_span_each() -> None:
    src = torch.zeros(10, 128, dtype=torch.uint8)[:, :100]
    dst = torch.zeros(10, 5, 20, dtype=torch.uint8)
    a, b = src.data_ptr(), dst.data_ptr()
    assert _spans(src, dst, [(1, 4), (2, 5), (7, 8)]) == [
        [b + 400, a + 128, 100],
        [b + 500, a + 256, 100],
        [b + 800, a + 7 * 128, 100],
    ]
    assert _spans(src, dst, []) == []


SPAN = st.tuples(st.integers(0, 3 * CHUNK_BYTES), st.integers(0, 3 * CHUNK_BYTES), st.integers(1, 5 * CHUNK_BYTES // 2))


@given(SPAN)
def test_cut_spans_are_the_same_bytes_and_cross_no_border(span: tuple[int, int, int]) -> None:
    parts = copies.cut(np.array([span], np.int64)).tolist()
    ends = [[target + nbytes, source + nbytes] for target, source, nbytes in parts]
    assert [part[:2] for part in parts] == [list(span[:2]), *ends[:-1]], "each begins where the one before has ended"
    assert sum(nbytes for _, _, nbytes in parts) == span[2]
    for target, source, nbytes in parts:
        assert nbytes > 0
        for start in (target, source):
            assert start // CHUNK_BYTES == (start + nbytes - 1) // CHUNK_BYTES


@given(st.lists(SPAN, max_size=5))
def test_spans_are_cut_each_for_itself(spans: list[tuple[int, int, int]]) -> None:
    apart = [part for span in spans for part in copies.cut(np.array([span], np.int64)).tolist()]
    assert copies.cut(np.array(spans, np.int64).reshape(-1, 3)).tolist() == apart


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registrations of 8 KiB: most pages of `tiny` lie across two."""
    for module in ("pinned", "copies"):
        monkeypatch.setattr(f"radixd.gpu_pool.cuda.{module}.CHUNK_BYTES", 8192)


def test_host_memory_is_registered_in_chunks_that_no_copy_crosses(
    gpus: FakeGpus, layout: LayoutKind, open_pool: OpenPool, host: HostPool, small_chunks: None
) -> None:
    memory = open_pool(layout)
    memory.pin(host)
    save_pages(memory, host, range(1, 13), range(1, 13)).result()
    for rows, theirs in zip(memory.views[0].layer_rows, host.views.layer_rows, strict=True):
        assert torch.equal(rows[1:], theirs[1:])


def test_memory_is_pinned_page_by_page_once_and_given_back(
    fake_gpus: FakeGpus, host: HostPool, small_chunks: None
) -> None:
    from cuda.bindings import runtime

    pinned = PinnedMemory(host.views.buffer)
    start, end = host.views.buffer.data_ptr(), host.views.buffer.data_ptr() + host.views.buffer.numel()
    for address in range(start, end, 4096):
        assert runtime.cudaHostGetFlags(address)[1] == runtime.cudaHostRegisterPortable
    pinned.close()
    assert runtime.cudaHostGetFlags(start)[0] == runtime.cudaError_t.cudaErrorInvalidValue


def test_memory_that_cannot_be_pinned_says_what_it_must_lie_on_and_leaves_nothing(
    fake_gpus: FakeGpus, open_pool: OpenPool, host: HostPool, small_chunks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = open_pool()
    fake_gpus.fail("cudaHostRegister", "cudaErrorNotSupported", nth=3)
    with pytest.raises(DeviceMemoryError, match=r"cudaErrorNotSupported.*tmpfs or hugetlbfs.*ulimit -l"):
        memory.pin(host)
    memory.pin(host)
    monkeypatch.setattr("radixd.gpu_pool.cuda.pinned.MADV_POPULATE_WRITE", 1000)  # a kernel that does not know it
    other = HostPool.anonymous(host.layout.geometry, 3)
    memory.pin(other)
    other.close()


def test_memory_that_the_kernel_cannot_give_is_not_pinned(fake_gpus: FakeGpus, open_pool: OpenPool) -> None:
    memory = open_pool()

    class Unmapped:
        def data_ptr(self) -> int:
            return 4096

        def numel(self) -> int:
            return 4096

    with pytest.raises(DeviceMemoryError, match="Cannot allocate memory"):
        memory.devices[0].pin(Unmapped())  # type: ignore[arg-type]
