"""Copies: what may be copied where, and what is seen of those that may not."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cuda.bindings import runtime as cuda

from tests.fake_cuda.control import FakeGpus
from tests.fake_cuda.plugin import MakeFakeGpus
from tests.unit.fake_cuda.calls import DEFAULT, address, device_bytes, error, host, ok, stream, violated

PAGE = 4096
KIND = cuda.cudaMemcpyKind


class Board:
    """Two allocations, one stream, one registered buffer of three pages, the last two registered as one."""

    def __init__(self, gpus: FakeGpus) -> None:
        self.gpus = gpus
        self.first, self.second = (ok(cuda.cudaMalloc(3 * PAGE)) for _ in range(2))
        self.stream = stream()
        self.buffer = host(4 * PAGE)
        self.buffer[:] = np.arange(4 * PAGE) % 251
        ok(cuda.cudaHostRegister(address(self.buffer), PAGE, 0))
        ok(cuda.cudaHostRegister(address(self.buffer) + PAGE, 2 * PAGE, 0))

    def wait(self) -> None:
        ok(cuda.cudaStreamSynchronize(self.stream))

    def close(self) -> None:
        for start in (0, PAGE):
            ok(cuda.cudaHostUnregister(address(self.buffer) + start))
        ok(cuda.cudaStreamDestroy(self.stream))
        for memory in (self.first, self.second):
            ok(cuda.cudaFree(memory))


@pytest.fixture
def board(fake_gpus: FakeGpus) -> Iterator[Board]:
    made = Board(fake_gpus)
    yield made
    made.close()


def attributes(order: str = "Stream") -> Any:
    made = cuda.cudaMemcpyAttributes()
    made.srcAccessOrder = getattr(cuda.cudaMemcpySrcAccessOrder, f"cudaMemcpySrcAccessOrder{order}")
    return made


def test_a_copy_may_span_registrations_side_by_side(board: Board) -> None:
    ok(cuda.cudaMemcpyAsync(board.first, address(board.buffer), 3 * PAGE, KIND.cudaMemcpyHostToDevice, board.stream))
    board.wait()
    assert device_bytes(board.first, 3 * PAGE) == board.buffer[: 3 * PAGE].tobytes()


def test_a_copy_beyond_what_is_registered_is_seen(board: Board) -> None:
    call = cuda.cudaMemcpyAsync(board.first, address(board.buffer) + 2 * PAGE, 2 * PAGE, DEFAULT, board.stream)
    assert error(call) == "cudaErrorInvalidValue"
    violated(board.gpus, "cudaMemcpyAsync", "behind their memory")


def test_an_asynchronous_copy_of_memory_that_is_not_registered_is_seen(board: Board) -> None:
    assert error(cuda.cudaMemcpyAsync(board.first, host(PAGE), PAGE, DEFAULT, board.stream)) == "cudaErrorInvalidValue"
    violated(board.gpus, "cudaMemcpyAsync", "neither")


def test_a_synchronous_copy_takes_any_host_memory(board: Board) -> None:
    out = host(PAGE)
    ok(cuda.cudaMemcpy(board.first, board.buffer, PAGE, DEFAULT))
    ok(cuda.cudaMemcpy(out, board.first, PAGE, KIND.cudaMemcpyDeviceToHost))
    assert out.tobytes() == board.buffer[:PAGE].tobytes()
    assert error(cuda.cudaMemcpy(board.first, 64, PAGE, DEFAULT)) == "cudaErrorInvalidValue"
    violated(board.gpus, "cudaMemcpy", "no memory of this process")


def test_a_kind_that_does_not_fit_is_seen(board: Board) -> None:
    call = cuda.cudaMemcpyAsync(board.first, board.second, PAGE, KIND.cudaMemcpyHostToDevice, board.stream)
    assert error(call) == "cudaErrorInvalidMemcpyDirection"
    violated(board.gpus, "cudaMemcpyHostToDevice", "source")


def test_rows_with_pitches(board: Board) -> None:
    source = address(board.buffer)
    ok(cuda.cudaMemcpy2DAsync(board.first, 100, source, 50, 30, 4, DEFAULT, board.stream))
    board.wait()
    for row in range(4):
        assert device_bytes(board.first + 100 * row, 30) == board.buffer[50 * row : 50 * row + 30].tobytes()
        assert set(device_bytes(board.first + 100 * row + 30, 70)) == {0xA5}
    call = cuda.cudaMemcpy2DAsync(board.first, 20, source, 50, 30, 4, DEFAULT, board.stream)
    assert error(call) == "cudaErrorInvalidPitchValue"
    call = cuda.cudaMemcpy2DAsync(board.first, PAGE, source, PAGE, 30, 4, DEFAULT, board.stream)
    assert error(call) == "cudaErrorInvalidValue"
    violated(board.gpus, "cudaMemcpy2DAsync")


def test_a_batch(board: Board) -> None:
    targets = [board.first + index * 100 for index in range(20)]
    sources = [address(board.buffer) + index * 50 for index in range(20)]
    ok(
        cuda.cudaMemcpyBatchAsync(
            targets, sources, [50] * 20, 20, [attributes(), attributes()], [0, 7], 2, board.stream
        )
    )
    board.wait()
    assert all(
        device_bytes(target, 50) == board.buffer[50 * index : 50 * index + 50].tobytes()
        for index, target in enumerate(targets)
    )


@pytest.mark.parametrize(
    ("order", "firsts"),
    [("Invalid", [0]), ("DuringApiCall", [0]), ("Stream", [1]), ("Stream", [0, 0]), ("Stream", [0, 2]), ("Stream", [])],
)
def test_a_batch_whose_attributes_do_not_cover_it_is_seen(board: Board, order: str, firsts: list[int]) -> None:
    given = [attributes(order)] * len(firsts)
    targets, sources = [board.first, board.first + 100], [board.second, board.second + 100]
    call = cuda.cudaMemcpyBatchAsync(targets, sources, [100, 100], 2, given, firsts, len(firsts), board.stream)
    assert error(call) == "cudaErrorInvalidValue"
    violated(board.gpus, "cudaMemcpyBatchAsync")


def test_a_batch_on_the_default_stream_is_seen(board: Board) -> None:
    call = cuda.cudaMemcpyBatchAsync([board.first], [board.second], [100], 1, [attributes()], [0], 1, 0)
    assert error(call) == "cudaErrorInvalidValue"
    violated(board.gpus, "default stream")


@pytest.mark.parametrize(
    ("targets", "sources"),
    [((0, 200), (1000, 50)), ((50, 200), (1000, 0)), ((0, 99), (1000, 1200))],
    ids=["read behind a write", "write behind a read", "two writes"],
)
def test_a_batch_that_relies_on_an_order_is_seen(
    board: Board, targets: tuple[int, int], sources: tuple[int, int]
) -> None:
    ends = [[board.first + offset for offset in offsets] for offsets in (targets, sources)]
    call = cuda.cudaMemcpyBatchAsync(*ends, [100, 100], 2, [attributes()], [0], 1, board.stream)
    assert error(call) == "cudaErrorInvalidValue"
    violated(board.gpus, "without order")


def test_pieces_of_a_batch_may_read_the_same_bytes(board: Board) -> None:
    targets, sources = [board.first, board.first + 100], [board.second, board.second + 50]
    ok(cuda.cudaMemcpyBatchAsync(targets, sources, [100, 100], 2, [attributes()], [0], 1, board.stream))


def test_a_batch_takes_lists_of_pythons_numbers(board: Board) -> None:
    with pytest.raises(TypeError):
        cuda.cudaMemcpyBatchAsync(
            [board.first], [board.second], np.array([100]), 1, [attributes()], [0], 1, board.stream
        )
    violated(board.gpus, "sizes")
    with pytest.raises(RuntimeError, match="too small"):
        cuda.cudaMemcpyBatchAsync([board.first], [board.second], [100], 2, [attributes()], [0], 1, board.stream)
    violated(board.gpus, "too small")


def test_a_driver_without_batches(make_fake_gpus: MakeFakeGpus) -> None:
    make_fake_gpus(batch_memcpy=False)
    memory, queue = ok(cuda.cudaMalloc(200)), stream()
    for _ in range(2):
        call = cuda.cudaMemcpyBatchAsync([memory], [memory + 100], [100], 1, [attributes()], [0], 1, queue)
        assert error(call) == "cudaErrorCallRequiresNewerDriver"
    ok(cuda.cudaStreamDestroy(queue))
    ok(cuda.cudaFree(memory))


def test_a_peer_copy_names_the_devices_of_its_ends(board: Board) -> None:
    call = cuda.cudaMemcpyPeerAsync(board.first, 1, board.second, 0, 100, board.stream)
    assert error(call) == "cudaErrorInvalidValue"
    violated(board.gpus, "cudaMemcpyPeerAsync", "not on device 1")


def test_memory_given_up_under_a_queued_copy_is_seen_when_it_runs(fake_gpus: FakeGpus) -> None:
    memory, queue, buffer = ok(cuda.cudaMalloc(PAGE)), stream(), host(PAGE)
    ok(cuda.cudaHostRegister(buffer, PAGE, 0))
    with fake_gpus.paused():
        ok(cuda.cudaMemcpyAsync(memory, buffer, PAGE, DEFAULT, queue))
        ok(cuda.cudaHostUnregister(buffer))
        violated(fake_gpus, "cudaHostUnregister", "still uses")
    assert error(cuda.cudaStreamSynchronize(queue)) == "cudaErrorIllegalAddress"
    violated(fake_gpus, "when it ran", "no longer registered")
