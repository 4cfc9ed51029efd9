"""Checksums of pages, seeded by whose they are: right bytes in a wrong place fail like wrong bytes."""

import hashlib
from collections.abc import Callable

import numpy as np
import xxhash
from numpy.typing import NDArray

from radixd.server.cache.chain import chain
from radixd.server.cache.host_log import Kept
from radixd.server.cache.namespace import Namespace

PageReader = Callable[[int], memoryview]
"""The bytes of a host page, contiguous. Called on any thread."""


class Seal:
    """Seals pages of one geometry and namespace."""

    def __init__(self, fingerprint: bytes, namespace: Namespace) -> None:
        self._seed = hashlib.blake2b(fingerprint, digest_size=8, person=b"radixd seal")
        for part in (namespace.model, namespace.extra_key, namespace.cache_salt):
            self._seed.update(len(part).to_bytes(4, "little") + part)

    def checksum(self, name: bytes, page: memoryview) -> int:
        """xxh3-64 of the page whose chain hash is `name`."""
        seed = self._seed.copy()
        seed.update(name)
        return xxhash.xxh3_64_intdigest(page, seed=int.from_bytes(seed.digest(), "little"))


def seal(kept: Kept, fingerprint: bytes, read_page: PageReader) -> NDArray[np.uint64]:
    """A checksum for each page of `kept`, to be taken once its bytes are in place. Made for a copier thread.

    The bytes may change meanwhile if the run is lost: the journal then ignores the checksums.
    """
    sealing = Seal(fingerprint, kept.namespace)
    step = len(kept.key) // len(kept.host_pages)
    checksums = np.empty(len(kept.host_pages), np.uint64)
    name = kept.parent
    for i, page in enumerate(kept.host_pages.tolist()):
        name = chain(name, kept.key[i * step : (i + 1) * step])
        checksums[i] = sealing.checksum(name, read_page(page))
    return checksums
