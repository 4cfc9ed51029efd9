"""What a page's name is made of: itself and every page before it."""

import hashlib

CHAIN_BYTES = 16
ROOT = b"\0" * CHAIN_BYTES


def chain(parent: bytes, key_page: bytes) -> bytes:
    """16 bytes that name a page by its key and by `parent`, the chain hash of the page before (ROOT at the root).

    Equal hashes mean equal prefixes, on any machine and in any process. Namespaces are not part of it.
    """
    return hashlib.blake2b(parent + key_page, digest_size=CHAIN_BYTES, person=b"radixd").digest()


def chain_names(parent: bytes, key: bytes, pages: int) -> list[bytes]:
    """The chain hashes of a run of `pages` behind `parent`, whose key elements are `key`."""
    names, step = [], len(key) // pages
    for at in range(0, len(key), step):
        parent = chain(parent, key[at : at + step])
        names.append(parent)
    return names
