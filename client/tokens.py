"""Tokens, page ids and slot ids as flat little-endian memory, which is how they travel."""

from array import array
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

TOKEN_BYTES = 4
MAX_TOKEN = 2**32 - 1

Tokens: TypeAlias = "bytes | bytearray | memoryview | array[int] | npt.NDArray[np.integer] | Sequence[int]"
"""Token ids: raw little-endian uint32 memory (bytes, bytearray, memoryview of bytes), or integers that fit in uint32
(numpy array of any integer dtype, `array`, typed memoryview, list). Flat uint32 memory is copied once, nothing is read
token by token."""

Pages = npt.NDArray[np.int32]
"""Page ids or slot ids, flat int32."""


def token_bytes(tokens: Tokens, field: str = "tokens") -> bytes:
    """`tokens` as packed little-endian uint32. Raises ValueError or TypeError, naming `field`."""
    if isinstance(tokens, bytes):
        raw = tokens
    elif isinstance(tokens, bytearray) or (isinstance(tokens, memoryview) and tokens.format in ("B", "b", "c")):
        raw = bytes(tokens)
    else:
        return _packed(np.asarray(tokens), field)
    if len(raw) % TOKEN_BYTES:
        raise ValueError(f"{field}: {len(raw)} bytes are no whole number of uint32 tokens of {TOKEN_BYTES} bytes")
    return raw


def id_bytes(ids: npt.ArrayLike, field: str) -> bytes:
    """Page or slot ids as packed little-endian int32. Raises ValueError naming `field`."""
    given = np.asarray(ids)
    if given.size == 0:
        return b""
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise ValueError(f"{field}: expected a flat array of integer ids, got {given.dtype} of shape {given.shape}")
    if int(given.min()) < 0 or int(given.max()) >= 2**31:
        raise ValueError(f"{field}: ids reach from {given.min()} to {given.max()}, outside [0, {2**31 - 1}]")
    return given.astype("<i4", copy=False).tobytes()


def page_ids(packed: bytes) -> Pages:
    """Packed little-endian int32 as a read-only int32 array over the same memory."""
    return np.frombuffer(packed, dtype="<i4")


def _packed(given: npt.NDArray[np.generic], field: str) -> bytes:
    if given.size == 0:
        return b""
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise TypeError(
            f"{field}: expected flat integers in [0, {MAX_TOKEN}], got {given.dtype} of shape {given.shape}"
        )
    unsigned = given.dtype.kind == "u"
    if (given.dtype.itemsize > TOKEN_BYTES and int(given.max()) > MAX_TOKEN) or not (unsigned or int(given.min()) >= 0):
        raise ValueError(
            f"{field}: values reach from {given.min()} to {given.max()}; a token id must be within [0, {MAX_TOKEN}]"
        )
    return given.astype("<u4", copy=False).tobytes()
