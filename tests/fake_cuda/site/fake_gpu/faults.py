"""Which planted fault a call meets; how often each was met is counted in each process for itself."""

import os
import threading
from collections import Counter

from fake_gpu.device import Device
from fake_gpu.errors import Failed, cudaError_t
from fake_gpu.machine import Machine


class Faults:
    """Raises what a test has planted."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._met: Counter[int] = Counter()
        self._lock = threading.Lock()

    def meet(self, call: str, device: Device) -> None:
        """Raises Failed where a fault is due for `call` on `device`; a sticky one breaks the device too."""
        for fault in self._machine.state.faults:
            if fault.call != call or fault.pid not in (None, os.getpid()) or fault.gpu not in (None, device.index):
                continue
            with self._lock:
                self._met[fault.id] += 1
                met = self._met[fault.id]
            if fault.nth in (None, met):
                error = cudaError_t[fault.error]
                if fault.sticky:
                    device.sticky = error
                raise Failed(error)
