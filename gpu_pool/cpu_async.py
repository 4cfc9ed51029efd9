"""Host memory whose copies are late, as a GPU's are: what catches a missing fence without a GPU."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import torch

from radixd.gpu_pool.cpu import CpuDevice
from radixd.gpu_pool.device import Copy, Device
from radixd.gpu_pool.handle import Handle


class CpuAsyncDevice:
    """A CpuDevice whose copies run in order on one thread, each no sooner than `delay_s` after it was handed in.

    A copy reads its sources when it runs: whoever reuses them before its future has ended corrupts it, and a test
    sees that.
    """

    kind: Final = "cpu_async"
    lost: Final = None

    def __init__(self, nbytes: int, name: str = "radixd", delay_s: float = 0.002) -> None:
        self._memory = CpuDevice(nbytes, name)
        self._delay_s = delay_s
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"{name}-copies")
        self._running = threading.Event()
        self._running.set()
        self._closing = threading.Event()

    @property
    def buffer(self) -> torch.Tensor:
        """Flat uint8."""
        return self._memory.buffer

    def export(self) -> Handle:
        """The memfd."""
        memory = self._memory.export()
        return Handle(self.kind, memory.nbytes, memory.fd)

    def pin(self, host: torch.Tensor) -> None:
        """Nothing to do."""

    def add_peer(self, peer: Device) -> None:
        """Nothing to do."""

    def copy_async(self, copies: Sequence[Copy]) -> Future[None]:
        """Run `copies` later."""
        return self._thread.submit(self._run, tuple(copies), time.monotonic() + self._delay_s)

    def _run(self, copies: Sequence[Copy], due: float) -> None:
        self._closing.wait(max(0.0, due - time.monotonic()))
        self._running.wait()
        for copy in copies:
            copy.run()

    def pause(self) -> None:
        """Start no further copy until `resume`; one that has begun ends."""
        self._running.clear()

    def resume(self) -> None:
        """Let copies run again."""
        self._running.set()

    def probe(self) -> Future[None]:
        """Ends after all copies handed in so far; never while paused."""
        return self.copy_async([])

    def leave(self) -> None:
        """As `close`: a mapping outlives the descriptor."""
        self.close()

    def close(self) -> None:
        """Run what was handed in without further delay, then give up the memory. Once only."""
        self._closing.set()
        self._running.set()
        self._thread.shutdown()
        self._memory.close()
