"""This process's descriptors."""

import gc
from pathlib import Path


def open_descriptors() -> set[str]:
    """Their numbers. The kernel skips one for a call of accept() that still waits: beside such, compare how many."""
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


def settled_descriptors() -> set[str]:
    """The same, once what earlier tests left to the garbage collector has closed its own."""
    gc.collect()
    return open_descriptors()
