"""The bytes that replay writes: every token of every prefix has a seed of its own, and from it a slot's whole content.

A seed stands for (model, namespace, all tokens so far up to and including this one), so equal prefixes have equal
bytes, and a page that is stale, foreign, shifted or unwritten shows in every word. The word at index w of a slot is
`seed ^ salt[w]`, one salt for each (component, layer, word): one pass over memory, no table of bytes.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import xxhash

Tokens = npt.NDArray[np.uint32]
Seeds = npt.NDArray[np.uint64]

_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)
_GARBAGE: Final = np.uint64(0xD6E8FEB86659FD93)


def mixed(values: Seeds) -> Seeds:
    """A bijection of uint64 whose every output bit depends on every input bit (splitmix64's finaliser)."""
    mixing = values ^ (values >> np.uint64(30))
    mixing *= _FIRST
    mixing ^= mixing >> np.uint64(27)
    mixing *= _SECOND
    mixing ^= mixing >> np.uint64(31)
    return mixing


def root_seed(model: bytes, extra_key: bytes = b"", cache_salt: bytes = b"") -> int:
    """What a namespace adds to its seeds. The parts are tagged by length: ("ab", "c") is not ("a", "bc")."""
    parts = (model, extra_key, cache_salt)
    return xxhash.xxh3_64_intdigest(b"".join(len(part).to_bytes(8, "little") + part for part in parts))


def token_seeds(root: int, tokens: Tokens) -> Seeds:
    """uint64[tokens]: seed t hashes `root` and tokens[: t + 1], each at its place."""
    placed = np.arange(tokens.size, dtype=np.uint64)
    placed *= _STEP
    placed += tokens
    sums = np.cumsum(mixed(placed), out=placed)
    sums += np.uint64(root)
    return mixed(sums)


def poison_seeds(session_id: int, lease_id: int, page_size: int) -> Seeds:
    """uint64[page_size]: what a lease's pages hold from their receipt until KV is written."""
    root = xxhash.xxh3_64_intdigest(b"poison %d %d" % (session_id, lease_id))
    return mixed(np.arange(page_size, dtype=np.uint64) * _STEP + np.uint64(root))


def garbage_seeds(root: int, start: int, count: int) -> Seeds:
    """What is written at [start, start + count) for tokens that are wrong: rejected drafts, one after the last."""
    return mixed(mixed(np.arange(start, start + count, dtype=np.uint64) + np.uint64(root)) ^ _GARBAGE)


def word_salts(component: int, region: int, layers: int, words: int) -> Seeds:
    """uint64[layers, 1, words]: distinct for each component, region (or row), layer and word."""
    places = np.arange(layers * words, dtype=np.uint64) * _STEP
    root = xxhash.xxh3_64_intdigest(b"salt %d %d" % (component, region))
    return mixed(places + np.uint64(root)).reshape(layers, 1, words)
