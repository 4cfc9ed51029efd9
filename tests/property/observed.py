"""What can be seen of a cache from outside its verbs: its tree as whole prefixes, and whether anything changed."""

from collections.abc import Mapping
from functools import cache
from itertools import count
from types import FunctionType, MethodType

import numpy as np

from radixd.server.cache.namespace import Namespace
from radixd.server.cache.node import Node
from radixd.server.cache.prefix_cache import PrefixCache
from radixd.server.cache.speculative import Speculative

TOKEN = 4
# How much a collection has ever handed out, and scratch memory: no part of what a cache is.
_IDLE = ("_mark", "_serials", "_clock", "_order", "_lease_ids", "_copy_ids")


def read_tree(pool: PrefixCache) -> dict[tuple[Namespace, bytes], int]:
    """The page of every matchable prefix: by namespace and all its tokens, and the next where pairs are keyed."""
    prefixes: dict[Node, bytes] = {}
    found: dict[tuple[Namespace, bytes], int] = {}
    width = pool.tree.page_bytes
    for node in pool.tree:
        assert node.parent is not None
        before = prefixes.get(node.parent, b"")
        prefixes[node] = before + node.buffer[node.start : node.stop]
        if not node.root.detached:
            for index, page in enumerate(node.pages.tolist()):
                key = prefixes[node][: len(before) + (index + 1) * width]
                found[node.root.namespace, _tokens(key, pool.config.speculative)] = page
    return found


def _tokens(key: bytes, mode: Speculative) -> bytes:
    if mode is not Speculative.BIGRAM:
        return key
    pairs = np.frombuffer(key, "<u4").reshape(-1, 2)
    assert (pairs[1:, 0] == pairs[:-1, 1]).all(), "the pairs along a path do not overlap"
    return pairs[:, 0].tobytes() + pairs[-1:, 1].tobytes()


def fingerprint(pool: PrefixCache) -> object:
    """Everything a cache holds, recency and order included: equal before and after exactly if nothing changed."""
    return _frozen(pool, {})


def _frozen(value: object, seen: dict[int, int]) -> object:
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return value
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tobytes()
    if isinstance(value, (FunctionType, MethodType, type, count)):
        return type(value).__name__
    if id(value) in seen:
        return "seen", seen[id(value)]
    seen[id(value)] = len(seen)
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, Mapping):
        return [(_frozen(key, seen), _frozen(item, seen)) for key, item in value.items()]
    if isinstance(value, (list, tuple)) or type(value).__name__ == "deque":
        return [_frozen(item, seen) for item in value]  # type: ignore[attr-defined]
    if isinstance(value, (set, frozenset)):
        return len(value), sorted(seen.get(id(item), -1) for item in value)
    return type(value).__name__, [(name, _frozen(getattr(value, name), seen)) for name in _attributes(value)]


def _attributes(value: object) -> list[str]:
    names = (*getattr(value, "__dict__", ()), *_slots(type(value)))
    return [name for name in names if name not in _IDLE and hasattr(value, name)]


@cache
def _slots(kind: type) -> tuple[str, ...]:
    return tuple(name for base in kind.__mro__ for name in getattr(base, "__slots__", ()))
