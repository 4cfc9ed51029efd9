"""What one process knows of the machine: made at its first call, and anew after a test has changed the directory."""

import atexit
import os
import threading
from dataclasses import dataclass
from pathlib import Path

from fake_gpu.address_space import AddressSpace
from fake_gpu.allocation import Ledger
from fake_gpu.checks import Record, Violations
from fake_gpu.copies import Copies
from fake_gpu.device import Device, visible_devices
from fake_gpu.errors import Failed, cudaError_t
from fake_gpu.event import Events
from fake_gpu.faults import Faults
from fake_gpu.host import HostMemory
from fake_gpu.ipc import Ipc
from fake_gpu.machine import Machine
from fake_gpu.memory import Memory
from fake_gpu.streams import Streams

ENVIRONMENT = "RADIXD_FAKE_CUDA"
"""Names the shared directory; where it is unset there is no driver."""


@dataclass
class Thread(threading.local):
    """What CUDA keeps for each thread: its device, number 0 at first, and the last error."""

    device: int = 0
    last_error: cudaError_t = cudaError_t.cudaSuccess


class Process:
    """The parts of the fake in this process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.pid = os.getpid()
        self.machine = Machine(root)
        self.thread = Thread()
        self.violations = Violations(root / "violations")
        self.devices = visible_devices(self.machine, os.environ.get("CUDA_VISIBLE_DEVICES"))
        self.faults = Faults(self.machine)
        self.space = AddressSpace(self.violations)
        ledger = Ledger(root)
        self.streams = Streams(self.space, self.faults)
        self.events = Events(self.space, self.streams)
        self.memory = Memory(self.space, ledger, self.streams)
        self.ipc = Ipc(self.space, ledger, self.streams, self.devices)
        self.host = HostMemory(self.space, self.streams, self.devices)
        self.copies = Copies(self.space)

    @property
    def device(self) -> Device:
        """The calling thread's."""
        return self.device_at(self.thread.device)

    def device_at(self, ordinal: int) -> Device:
        """By its number here."""
        if not 0 <= ordinal < len(self.devices):
            raise Failed(cudaError_t.cudaErrorInvalidDevice)
        return self.devices[ordinal]

    def leave(self) -> None:
        """Record what the program has left behind, and end as a process does."""
        leaks = Record(self.root / "leaks")
        for part in (self.memory, self.ipc, self.host, self.streams, self.events):
            for leak in part.leaked():
                leaks.add(leak)
        self.streams.abandon()
        self.memory.abandon()


def current() -> Process | None:
    """This process's, or None without a machine. Raises Failed in a child forked after the first call."""
    global _current
    root = os.environ.get(ENVIRONMENT)
    found = _current
    if found is None or str(found.root) != root:
        with _lock:
            found = _current
            if found is None or str(found.root) != root:
                leave()
                _current = found = Process(Path(root)) if root else None
    if found is not None and found.pid != os.getpid():
        raise Failed(cudaError_t.cudaErrorInitializationError)
    return found


def leave() -> None:
    """End this process's part in the machine."""
    global _current
    if _current is not None and _current.pid == os.getpid() and _current.root.exists():
        _current.leave()
    _current = None


_current: Process | None = None
_lock = threading.Lock()
atexit.register(leave)
