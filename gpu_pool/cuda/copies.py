"""Page copies as CUDA takes them: many addresses in few calls, made by numpy, without a step of Python a page."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from radixd.gpu_pool.cuda.pinned import CHUNK_BYTES
from radixd.gpu_pool.cuda.runtime import CudaError, cudart, do
from radixd.gpu_pool.device import PageCopy

Rectangles = npt.NDArray[np.int64]
"""[n, 6]: target, source, bytes a row, rows, bytes from one target row to the next, and of the source."""
Spans = npt.NDArray[np.int64]
"""[n, 3]: target, source, bytes."""

HEIGHT = 3
BATCH = 4096
"""Copies a call: NVIDIA's bindings hold the GIL for about 0.2 us for each."""

DEFAULT = cudart.cudaMemcpyKind.cudaMemcpyDefault


def has_batches(stream: cudart.cudaStream_t, address: int) -> bool:
    """Whether the driver has cudaMemcpyBatchAsync: asked with one byte at `address`, copied to the next.

    Raises CudaError for any other failure.
    """
    try:
        _enqueue_batch(np.array([[address + 1, address, 1]], np.int64), stream)
    except CudaError as error:
        absent = (
            cudart.cudaError_t.cudaErrorCallRequiresNewerDriver,
            cudart.cudaError_t.cudaErrorNotSupported,
        )
        if error.code in absent:
            return False
        raise
    return True


def enqueue_in_batches(copies: Sequence[PageCopy], stream: cudart.cudaStream_t) -> None:
    """Put `copies` on the stream, BATCH of them a call. Raises CudaError."""
    spans = cut(spans_of(_all_rectangles(copies)))
    for first in range(0, len(spans), BATCH):
        _enqueue_batch(spans[first : first + BATCH], stream)


def enqueue_one_by_one(copies: Sequence[PageCopy], stream: cudart.cudaStream_t) -> None:
    """Put `copies` on the stream, a plain memcpy for each span. Raises CudaError.

    For GPUs without peer access: what batches and rectangles do between those is written nowhere.
    """
    _enqueue_spans(spans_of(_all_rectangles(copies)), stream)


def enqueue_in_runs(copies: Sequence[PageCopy], stream: cudart.cudaStream_t) -> None:
    """Put `copies` on the stream, one call a run: for drivers without batches. Raises CudaError."""
    rectangles = _all_rectangles(copies)
    tall = (rectangles[:, HEIGHT] > 1) & ~_crossing(rectangles)
    for target, source, width, height, target_pitch, source_pitch in rectangles[tall].tolist():
        do(
            cudart.cudaMemcpy2DAsync,
            target,
            target_pitch,
            source,
            source_pitch,
            width,
            height,
            DEFAULT,
            stream,
        )
    _enqueue_spans(spans_of(rectangles[~tall]), stream)


def _all_rectangles(copies: Sequence[PageCopy]) -> Rectangles:
    return np.concatenate([_rectangles(copy) for copy in copies])


def _enqueue_spans(spans: Spans, stream: cudart.cudaStream_t) -> None:
    for target, source, nbytes in cut(spans).tolist():
        do(cudart.cudaMemcpyAsync, target, source, nbytes, DEFAULT, stream)


def _rectangles(copy: PageCopy) -> Rectangles:
    """One rectangle a run; a single row of it where the pages of both ends lie without a gap."""
    itemsize = copy.src.element_size()
    width = math.prod(copy.src.shape[1:]) * itemsize
    source_pitch, target_pitch = copy.src.stride(0) * itemsize, copy.dst.stride(0) * itemsize
    sources = copy.src.data_ptr() + copy.runs[:, 0] * source_pitch
    targets = copy.dst.data_ptr() + copy.runs[:, 1] * target_pitch
    counts = copy.runs[:, 2]
    if source_pitch == target_pitch == width:
        shape = (counts * width, np.ones_like(counts))
    else:
        shape = (np.full_like(counts, width), counts)
    pitches = (np.full_like(counts, target_pitch), np.full_like(counts, source_pitch))
    return np.stack((targets, sources, *shape, *pitches), axis=1)


def spans_of(rectangles: Rectangles) -> Spans:
    """Each row of each rectangle."""
    target, source, width, _, target_pitch, source_pitch = rectangles.T.repeat(rectangles[:, HEIGHT], axis=1)
    row = _counted(rectangles[:, HEIGHT])
    return np.stack((target + row * target_pitch, source + row * source_pitch, width), axis=1)


def cut(spans: Spans) -> Spans:
    """`spans`, of which none crosses a multiple of CHUNK_BYTES at either end.

    There the next registration of host memory begins, and CUDA nowhere promises that a copy may span two.
    """
    for end in (0, 1):
        first, last = spans[:, end] // CHUNK_BYTES, (spans[:, end] + spans[:, 2] - 1) // CHUNK_BYTES
        parts = last - first + 1
        if (parts == 1).all():
            continue
        number = _counted(parts)
        spans = spans.repeat(parts, axis=0)
        start, nbytes = spans[:, end], spans[:, 2]
        border = (start // CHUNK_BYTES + number) * CHUNK_BYTES
        skipped = np.maximum(border - start, 0)
        until = np.minimum(border + CHUNK_BYTES - start, nbytes)
        spans = np.stack((spans[:, 0] + skipped, spans[:, 1] + skipped, until - skipped), axis=1)
    return spans


def _crossing(rectangles: Rectangles) -> npt.NDArray[np.bool_]:
    """bool [n]: whether a rectangle has bytes on both sides of a multiple of CHUNK_BYTES, at either end."""
    target, source, width, height, target_pitch, source_pitch = rectangles.T
    crossing = np.zeros(len(rectangles), np.bool_)
    for first, pitch in ((target, target_pitch), (source, source_pitch)):
        last = first + (height - 1) * pitch + width - 1
        crossing |= last // CHUNK_BYTES != first // CHUNK_BYTES
    return crossing


def _counted(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """0..counts[0]-1, 0..counts[1]-1, …"""
    before: npt.NDArray[np.int64] = np.cumsum(counts) - counts
    return np.arange(counts.sum(), dtype=np.int64) - before.repeat(counts)


def _enqueue_batch(spans: Spans, stream: cudart.cudaStream_t) -> None:
    targets, sources, sizes = spans.T.tolist()
    in_order = cudart.cudaMemcpyAttributes()
    in_order.srcAccessOrder = cudart.cudaMemcpySrcAccessOrder.cudaMemcpySrcAccessOrderStream
    do(cudart.cudaMemcpyBatchAsync, targets, sources, sizes, len(sizes), [in_order], [0], 1, stream)
