"""Mapping files at addresses that are never given out twice: a stale pointer is always found out."""

import ctypes
import mmap
import os
from pathlib import Path

PAGE = mmap.PAGESIZE
_MAP_FIXED, _MAP_NORESERVE = 0x10, 0x4000
_POISON_BYTES = 2 << 20

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]


def map_shared(file: Path, size: int) -> int:
    """The address of `size` bytes of `file`, seen by all who map it."""
    fd = os.open(file, os.O_RDWR)
    try:
        return _mmap(None, size, mmap.MAP_SHARED, fd)
    finally:
        os.close(fd)


def retire(address: int, size: int) -> None:
    """Put poison where a mapping was: what still reads there gets 0xDB, what it writes goes nowhere."""
    global _poison
    if _poison is None:
        _poison = os.memfd_create("fake-gpu-poison")
        os.write(_poison, b"\xdb" * _POISON_BYTES)
    end = address + pages(size)
    for start in range(address, end, _POISON_BYTES):
        _mmap(start, min(_POISON_BYTES, end - start), mmap.MAP_PRIVATE | _MAP_FIXED | _MAP_NORESERVE, _poison)


def mapped(address: int, size: int) -> bool:
    """Whether every byte of a range is mapped at all, by anyone."""
    start = address // PAGE * PAGE
    length = pages(address + size - start)
    return bool(_libc.mincore(start, length, ctypes.create_string_buffer(length // PAGE)) == 0)


def pages(size: int) -> int:
    """`size` rounded up to whole pages."""
    return -(-size // PAGE) * PAGE


def _mmap(address: int | None, size: int, flags: int, fd: int) -> int:
    got = _libc.mmap(address, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, fd, 0)
    if got in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "mmap of fake device memory")
    return int(got)


_poison: int | None = None
