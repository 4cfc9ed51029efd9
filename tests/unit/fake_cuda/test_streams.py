"""Streams and events: later, in order, and each on its own device."""

import time

import numpy as np
import pytest
from cuda.bindings import runtime as cuda

from tests.fake_cuda.control import FakeGpus
from tests.fake_cuda.plugin import MakeFakeGpus
from tests.unit.fake_cuda.calls import DEFAULT, device_bytes, error, host, ok, stream, violated


def test_work_is_executed_later_and_reads_its_sources_then(make_fake_gpus: MakeFakeGpus) -> None:
    fake_gpus = make_fake_gpus(delay_s=0)
    address, queue, buffer = ok(cuda.cudaMalloc(4096)), stream(), host(4096)
    ok(cuda.cudaHostRegister(buffer, 4096, 0))
    buffer[:] = 1
    with fake_gpus.paused():
        ok(cuda.cudaMemcpyAsync(address, buffer, 4096, DEFAULT, queue))
        buffer[:] = 2
        time.sleep(0.05)  # time enough for work that does not wait
        assert error(cuda.cudaStreamQuery(queue)) == "cudaErrorNotReady"
        assert set(device_bytes(address, 4096)) == {0xA5}
    ok(cuda.cudaStreamSynchronize(queue))
    ok(cuda.cudaStreamQuery(queue))
    assert set(device_bytes(address, 4096)) == {2}
    ok(cuda.cudaHostUnregister(buffer))
    ok(cuda.cudaStreamDestroy(queue))
    ok(cuda.cudaFree(address))


def test_no_work_runs_before_its_delay(make_fake_gpus: MakeFakeGpus) -> None:
    make_fake_gpus(delay_s=0.05)
    address, queue = ok(cuda.cudaMalloc(16)), stream()
    before = time.monotonic()
    ok(cuda.cudaMemsetAsync(address, 1, 16, queue))
    ok(cuda.cudaStreamSynchronize(queue))
    assert time.monotonic() - before >= 0.05
    ok(cuda.cudaStreamDestroy(queue))
    ok(cuda.cudaFree(address))


def test_a_stream_keeps_its_order(fake_gpus: FakeGpus) -> None:
    address, queue = ok(cuda.cudaMalloc(16)), stream()
    for value in range(50):
        ok(cuda.cudaMemsetAsync(address, value, 16, queue))
    ok(cuda.cudaStreamSynchronize(queue))
    assert device_bytes(address, 16) == bytes([49] * 16)
    ok(cuda.cudaStreamDestroy(queue))
    ok(cuda.cudaFree(address))


def test_a_set_of_device_memory_does_not_wait_for_itself(fake_gpus: FakeGpus) -> None:
    address = ok(cuda.cudaMalloc(16))
    with fake_gpus.paused():
        ok(cuda.cudaMemset(address, 0, 16))
        assert set(device_bytes(address, 16)) == {0xA5}
    ok(cuda.cudaDeviceSynchronize())
    assert set(device_bytes(address, 16)) == {0}
    ok(cuda.cudaFree(address))


def test_a_stream_of_another_device_waits_for_an_event(fake_gpus: FakeGpus) -> None:
    first, first_queue, event = ok(cuda.cudaMalloc(16)), stream(), ok(cuda.cudaEventCreateWithFlags(2))
    ok(cuda.cudaSetDevice(1))
    second, second_queue = ok(cuda.cudaMalloc(16)), stream()
    with fake_gpus.paused(0):
        ok(cuda.cudaSetDevice(0))
        ok(cuda.cudaMemsetAsync(first, 5, 16, first_queue))
        ok(cuda.cudaEventRecord(event, first_queue))
        assert error(cuda.cudaEventQuery(event)) == "cudaErrorNotReady"
        ok(cuda.cudaSetDevice(1))
        ok(cuda.cudaStreamWaitEvent(second_queue, event, 0))
        ok(cuda.cudaMemcpyPeerAsync(second, 1, first, 0, 16, second_queue))
        assert set(device_bytes(second, 16)) == {0xA5}
    ok(cuda.cudaStreamSynchronize(second_queue))
    ok(cuda.cudaEventQuery(event))
    assert set(device_bytes(second, 16)) == {5}
    for queue in (first_queue, second_queue):
        ok(cuda.cudaStreamDestroy(queue))
    for address in (first, second):
        ok(cuda.cudaFree(address))
    ok(cuda.cudaEventDestroy(event))


def test_the_time_between_two_events(fake_gpus: FakeGpus) -> None:
    queue = stream()
    first, last = (ok(cuda.cudaEventCreateWithFlags(0)) for _ in range(2))
    ok(cuda.cudaEventRecord(first, queue))
    with fake_gpus.paused():
        ok(cuda.cudaEventRecord(last, queue))
        assert error(cuda.cudaEventElapsedTime(first, last)) == "cudaErrorNotReady"
    ok(cuda.cudaEventSynchronize(last))
    assert ok(cuda.cudaEventElapsedTime(first, last)) >= 0
    untimed = ok(cuda.cudaEventCreateWithFlags(cuda.cudaEventDisableTiming))
    ok(cuda.cudaEventRecord(untimed, queue))
    ok(cuda.cudaEventSynchronize(untimed))
    assert error(cuda.cudaEventElapsedTime(first, untimed)) == "cudaErrorInvalidResourceHandle"
    violated(fake_gpus, "cudaEventElapsedTime")
    for event in (first, last, untimed):
        ok(cuda.cudaEventDestroy(event))
    ok(cuda.cudaStreamDestroy(queue))


def test_work_on_a_stream_of_another_device_is_seen(fake_gpus: FakeGpus) -> None:
    address, queue, event = ok(cuda.cudaMalloc(16)), stream(), ok(cuda.cudaEventCreateWithFlags(2))
    ok(cuda.cudaSetDevice(1))
    assert error(cuda.cudaMemsetAsync(address, 0, 16, queue)) == "cudaErrorInvalidResourceHandle"
    violated(fake_gpus, "cudaMemsetAsync", "current device is 1")
    assert error(cuda.cudaEventRecord(event, 0)) == "cudaErrorInvalidResourceHandle"
    violated(fake_gpus, "cudaEventRecord", "different devices")
    ok(cuda.cudaStreamDestroy(queue))
    ok(cuda.cudaEventDestroy(event))
    ok(cuda.cudaFree(address))


def test_destroying_twice_is_seen(fake_gpus: FakeGpus) -> None:
    queue, event = stream(), ok(cuda.cudaEventCreateWithFlags(2))
    ok(cuda.cudaStreamDestroy(queue))
    assert error(cuda.cudaStreamDestroy(queue)) == "cudaErrorInvalidResourceHandle"
    violated(fake_gpus, "cudaStreamDestroy", "destroyed")
    assert error(cuda.cudaStreamSynchronize(queue)) == "cudaErrorInvalidResourceHandle"
    violated(fake_gpus, "cudaStreamSynchronize", "destroyed")
    ok(cuda.cudaEventDestroy(event))
    assert error(cuda.cudaEventDestroy(event)) == "cudaErrorInvalidResourceHandle"
    violated(fake_gpus, "cudaEventDestroy", "destroyed")


def test_a_destroyed_stream_executes_what_it_was_given(fake_gpus: FakeGpus) -> None:
    address, queue = ok(cuda.cudaMalloc(16)), stream()
    ok(cuda.cudaMemsetAsync(address, 1, 16, queue))
    ok(cuda.cudaStreamDestroy(queue))
    ok(cuda.cudaDeviceSynchronize())
    assert set(device_bytes(address, 16)) == {1}
    ok(cuda.cudaFree(address))


def test_each_thread_has_a_device_of_its_own(fake_gpus: FakeGpus) -> None:
    from concurrent.futures import ThreadPoolExecutor

    ok(cuda.cudaSetDevice(1))
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(lambda: ok(cuda.cudaGetDevice())).result() == 0
    assert ok(cuda.cudaGetDevice()) == 1


@pytest.mark.parametrize("stream_argument", ["0", 1.5])
def test_a_stream_is_a_handle(fake_gpus: FakeGpus, stream_argument: object) -> None:
    with pytest.raises(TypeError):
        cuda.cudaStreamSynchronize(stream_argument)
    violated(fake_gpus, "cudaStreamSynchronize")


def test_numpy_numbers_are_no_addresses(fake_gpus: FakeGpus) -> None:
    address = ok(cuda.cudaMalloc(16))
    with pytest.raises(TypeError, match="int64"):
        cuda.cudaMemset(np.int64(address), 0, 16)
    violated(fake_gpus, "cudaMemset")
    ok(cuda.cudaFree(address))
