"""A lane: one CUDA stream of a GPU for copies that go one way, and the thread that sees them end."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import NamedTuple

from radixd.gpu_pool.cuda.gpu import Gpu
from radixd.gpu_pool.cuda.runtime import CudaError, cudart, do, get
from radixd.gpu_pool.device import DeviceLost

Enqueue = Callable[[cudart.cudaStream_t], None]
"""Puts work on a stream and returns; raises where not all of it could be put there."""

EVENT_FLAGS = cudart.cudaEventBlockingSync | cudart.cudaEventDisableTiming


class _Begun(NamedTuple):
    """Work on the stream up to `mark`, or all of it where no mark could be set; `failure` cut it short."""

    mark: cudart.cudaEvent_t | None
    ended: Future[None]
    failure: Exception | None


class Lane:
    """Runs work in the order given. Thread-safe: enqueueing is done by whoever calls, waiting by a thread of its own.

    `lose` is told, before the futures are, that the GPU can be used no more. Raises CudaError.
    """

    def __init__(self, gpu: Gpu, name: str, lose: Callable[[CudaError], DeviceLost]) -> None:
        self._gpu = gpu
        self._lose = lose
        gpu.make_current()
        # A stream that the legacy default stream does not wait for, nor it for that.
        self._stream = get(cudart.cudaStreamCreateWithFlags, cudart.cudaStreamNonBlocking)
        self._order = threading.Lock()
        self._closed = False
        self._begun: SimpleQueue[_Begun | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._see_ends, name=name, daemon=True)
        self._thread.start()

    def run(self, enqueue: Enqueue) -> Future[None]:
        """Enqueue work. The future ends once the GPU has done all of it.

        Where enqueueing fails half way, what is on the stream already is waited for before the future fails. Once the
        lane is closed, it fails by RuntimeError.
        """
        ended: Future[None] = Future()
        ended.set_running_or_notify_cancel()
        with self._order:
            if self._closed:
                ended.set_exception(RuntimeError(f"{self._thread.name} is closed"))
            else:
                self._begun.put(self._begin(enqueue, ended))
        return ended

    def close(self) -> None:
        """Take no more work, wait for all that was enqueued, then give up the stream. Raises CudaError."""
        with self._order:
            self._closed = True
            self._begun.put(None)
        self._thread.join()
        self._gpu.make_current()
        do(cudart.cudaStreamDestroy, self._stream)

    def _begin(self, enqueue: Enqueue, ended: Future[None]) -> _Begun:
        failure: Exception | None = None
        try:
            self._gpu.make_current()
            try:
                enqueue(self._stream)
            except Exception as error:
                failure = error
            return _Begun(self._mark(), ended, failure)
        except CudaError as error:
            return _Begun(None, ended, failure or error)

    def _mark(self) -> cudart.cudaEvent_t:
        event = get(cudart.cudaEventCreateWithFlags, EVENT_FLAGS)
        try:
            do(cudart.cudaEventRecord, event, self._stream)
        except CudaError:
            cudart.cudaEventDestroy(event)
            raise
        return event

    def _see_ends(self) -> None:
        while (begun := self._begun.get()) is not None:
            failure = begun.failure
            try:
                self._wait(begun.mark)
            except CudaError as error:
                # What a wait answers with is the GPU's failure, whatever its number: nothing shows what was written.
                failure = self._lose(error)
            if isinstance(failure, CudaError) and failure.sticky:
                failure = self._lose(failure)
            if failure is None:
                begun.ended.set_result(None)
            else:
                begun.ended.set_exception(failure)

    def _wait(self, mark: cudart.cudaEvent_t | None) -> None:
        self._gpu.make_current()  # else the call would make a context on GPU 0
        if mark is None:
            do(cudart.cudaStreamSynchronize, self._stream)
            return
        try:
            do(cudart.cudaEventSynchronize, mark)
        finally:
            cudart.cudaEventDestroy(mark)
