"""What another process needs to map one device's memory."""

from dataclasses import dataclass
from typing import Literal

DeviceKind = Literal["cpu", "cpu_async", "meta"]


@dataclass(frozen=True)
class Handle:
    """One device's buffer of `nbytes`. `fd` is its memfd, None for `meta`, which has no memory.

    A handle exported by a device borrows the device's descriptor, valid until its close; a handle received from
    another process owns its own.
    """

    kind: DeviceKind
    nbytes: int
    fd: int | None = None
