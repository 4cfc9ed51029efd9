"""What tests do to the fake GPUs: make them, plant faults, hold them up, and read what was done wrong.

Use the fixture `fake_gpus` or `make_fake_gpus` (plugin.py). Programs that a test starts get `FakeGpus.env()`.
"""

import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

SITE = Path(__file__).parent / "site"
"""What stands first on the import path of a process, so that `cuda.bindings.runtime` is the fake."""

if str(SITE) not in sys.path:
    sys.path.insert(0, str(SITE))

from fake_gpu import checks, process  # noqa: E402
from fake_gpu.errors import cudaError_t  # noqa: E402
from fake_gpu.machine import Fault, Gpu, Machine, State  # noqa: E402

GIB = 1 << 30
FIRST_PCI_BUS = 0x1B


class FakeGpus:
    """A machine's GPUs, from entering to leaving the context. This process sees them too.

    Args:
        count: how many.
        memory: bytes of each, in files that take space as they are written.
        delay_s: no work of a stream is executed sooner than this after it was enqueued.
        batch_memcpy: False for a driver without cudaMemcpyBatchAsync.
        attributes: values of cudaDevAttr… in place of an H200's, for all GPUs.
    """

    def __init__(
        self,
        count: int = 1,
        memory: int = GIB,
        delay_s: float = 0.002,
        batch_memcpy: bool = True,
        attributes: Mapping[str, int] | None = None,
    ) -> None:
        gpus = tuple(
            Gpu(uuid.uuid4().hex, memory, FIRST_PCI_BUS + index, dict(attributes or {})) for index in range(count)
        )
        self._state = State(gpus, delay_s)
        self._batch_memcpy = batch_memcpy

    def __enter__(self) -> Self:
        shared = Path("/dev/shm")
        self.root = Path(tempfile.mkdtemp(prefix="fake-cuda-", dir=shared if shared.is_dir() else None))
        self._machine = Machine.create(self.root, self._state)
        self._fault_ids = count(1)
        self._before = {name: os.environ.pop(name, None) for name in ("CUDA_VISIBLE_DEVICES", process.ENVIRONMENT)}
        os.environ[process.ENVIRONMENT] = str(self.root)
        if not self._batch_memcpy:
            self.fail("cudaMemcpyBatchAsync", "cudaErrorCallRequiresNewerDriver", nth=None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()
        for name, value in self._before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        shutil.rmtree(self.root)

    @property
    def uuids(self) -> list[str]:
        """GPU-…, as nvidia-smi -L prints them, by the machine's index."""
        return [f"GPU-{uuid.UUID(gpu.uuid)}" for gpu in self._machine.state.gpus]

    def env(self, visible: str | None = None) -> dict[str, str]:
        """The environment of a program that uses the GPUs: this process's, and which of them it sees."""
        path = os.environ.get("PYTHONPATH")
        env = {
            **os.environ,
            process.ENVIRONMENT: str(self.root),
            "PYTHONPATH": f"{SITE}{os.pathsep}{path}" if path else str(SITE),
        }
        env.pop("CUDA_VISIBLE_DEVICES", None)
        return env if visible is None else {**env, "CUDA_VISIBLE_DEVICES": visible}

    def fail(
        self,
        call: str,
        error: str,
        nth: int | None = 1,
        sticky: bool = False,
        pid: int | None = None,
        gpu: int | None = None,
    ) -> int:
        """Make a call return an error, in running processes too. Returns a number for `mend`.

        Args:
            call: a function of the runtime, `torch.cuda.stream`, or `stream`: the next work that a stream executes.
            error: a name of cudaError_t.
            nth: which call from now on, counted in each process for itself; None for all of them.
            sticky: whether the process can use the device no more. An error of `stream` always is.
            pid: in that process alone.
            gpu: where that GPU, by the machine's index, is current (or the stream's).
        """
        assert error in cudaError_t.__members__, error
        fault = Fault(next(self._fault_ids), call, error, nth, sticky, pid, gpu)
        self._machine.change(faults=(*self._machine.state.faults, fault))
        return fault.id

    def mend(self, fault: int) -> None:
        """Let calls succeed again."""
        self._machine.change(faults=tuple(planted for planted in self._machine.state.faults if planted.id != fault))

    def pause(self, gpu: int = 0) -> None:
        """Execute nothing on a GPU, in any process; what has begun ends. Never resumed, it hangs."""
        self._machine.change(paused=(*self._machine.state.paused, gpu))

    def resume(self, gpu: int = 0) -> None:
        """Go on."""
        self._machine.change(paused=tuple(paused for paused in self._machine.state.paused if paused != gpu))

    @contextmanager
    def paused(self, gpu: int = 0) -> Iterator[None]:
        """Pause a GPU for a while."""
        self.pause(gpu)
        try:
            yield
        finally:
            self.resume(gpu)

    def lose(self, gpu: int = 0, error: str = "cudaErrorUnknown") -> None:
        """Let a GPU fall off the bus: every call on it returns `error` from now on, in every process."""
        assert error in cudaError_t.__members__, error
        self._machine.change(lost=(*self._machine.state.lost, (gpu, error)))

    def set_delay(self, delay_s: float) -> None:
        """For work enqueued from now on."""
        self._machine.change(delay_s=delay_s)

    def set_attributes(self, gpu: int = 0, **attributes: int) -> None:
        """Change cudaDevAttr… of one GPU."""
        gpus = list(self._machine.state.gpus)
        gpus[gpu] = replace(gpus[gpu], attributes={**gpus[gpu].attributes, **attributes})
        self._machine.change(gpus=tuple(gpus))

    def leave(self) -> None:
        """End this process's part, as its end would: what it still holds becomes leaks. The next call begins anew."""
        process.leave()

    def violations(self) -> list[str]:
        """What any process has done so far that no CUDA program may do."""
        return checks.lines(self.root / "violations")

    def leaks(self) -> list[str]:
        """What processes that have ended in order had not given back."""
        return checks.lines(self.root / "leaks")

    def forgive(self) -> None:
        """Forget violations and leaks: a test that provokes them has looked at them."""
        for folder in ("violations", "leaks"):
            for file in (self.root / folder).iterdir():
                file.unlink()
