"""Checksums of pages, seeded by whose they are: right bytes in a wrong place fail like wrong bytes."""

import hashlib
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from radixd.server.cache.chain import chain_names
from radixd.server.cache.host_log import Kept
from radixd.server.cache.namespace import Namespace
from radixd.server.cache.results import PageIds

Checksums = NDArray[np.uint64]
ReadChecksums = Callable[[PageIds, Checksums], Checksums]
"""xxh3-64 of these host pages' bytes as they are now, with these seeds: HostPool.checksums. Called on any thread."""


def seal(kept: Kept, fingerprint: bytes, read: ReadChecksums) -> Checksums:
    """A checksum for each page of `kept`, once its bytes are in place. Made for a copier thread.

    Where the run is lost meanwhile the bytes may change: the journal then ignores the checksums.
    """
    names = chain_names(kept.parent, kept.key, len(kept.host_pages))
    return read(kept.host_pages, page_seeds(fingerprint, kept.namespace, names))


def page_seeds(fingerprint: bytes, namespace: Namespace, names: Iterable[bytes]) -> Checksums:
    """Seeds for pages of one geometry and namespace with the chain hashes `names`: uint64."""
    whose = hashlib.blake2b(fingerprint, digest_size=8, person=b"radixd seal")
    for part in (namespace.model, namespace.extra_key, namespace.cache_salt):
        whose.update(len(part).to_bytes(4, "little") + part)
    seeds = bytearray()
    for name in names:
        seed = whose.copy()
        seed.update(name)
        seeds += seed.digest()
    return np.frombuffer(bytes(seeds), "<u8")
