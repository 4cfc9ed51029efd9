"""This process's descriptors."""

import gc
from pathlib import Path


def open_descriptors() -> int:
    """How many there are, once what nobody refers to any more has closed its own.

    Their numbers say nothing: the kernel takes one for a call of accept() that still waits.
    """
    gc.collect()
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
