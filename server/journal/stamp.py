"""The nonce in a data file: written into its page 0, which holds no KV, so that data and journal know each other."""

import xxhash

from radixd.server.journal.header import NONCE_BYTES

MAGIC = b"radixdD\n"
STAMP_BYTES = len(MAGIC) + NONCE_BYTES + 8


def write_stamp(page0: memoryview, nonce: bytes) -> None:
    """Puts `nonce` at the front of a data file's page 0, as bytes. Through the mapping: hugetlbfs has no write(2)."""
    page0[:STAMP_BYTES] = _stamp(nonce)


def read_stamp(page0: memoryview) -> bytes:
    """The nonce of the data file; 16 zero bytes, which no journal has, where it carries none."""
    nonce = bytes(page0[len(MAGIC) : len(MAGIC) + NONCE_BYTES])
    return nonce if bytes(page0[:STAMP_BYTES]) == _stamp(nonce) else b"\0" * NONCE_BYTES


def _stamp(nonce: bytes) -> bytes:
    return MAGIC + nonce + xxhash.xxh3_64_digest(nonce)
