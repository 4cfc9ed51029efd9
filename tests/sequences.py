"""Token sequences as the cache takes them: little-endian uint32 bytes, written down as letters."""

import numpy as np

PAGE = 64


def seq(letters: str, tail: int = 0, page_size: int = PAGE) -> bytes:
    """One page of distinct tokens a letter; of the last one only the first `tail` tokens, where `tail` is given.

    seq("AB") is two pages, seq("AB", tail=36) is A and the first 36 tokens of B.
    """
    runs = [np.arange(page_size, dtype="<u4") + np.uint32(ord(letter) * 10_000) for letter in letters]
    if tail:
        runs[-1] = runs[-1][:tail]
    return b"".join(run.tobytes() for run in runs)


def ramp(length: int, start: int = 0) -> bytes:
    """`length` tokens counting up from `start`."""
    return np.arange(start, start + length, dtype="<u4").tobytes()


def length(tokens: bytes) -> int:
    return len(tokens) // 4
