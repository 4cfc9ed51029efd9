"""Host memory that a cached token costs in SGLang's trees."""

import gc
import os
from pathlib import Path

from bench.sglang_reference.request import as_request_tokens
from bench.sglang_reference.trees import PrefixTree
from bench.workload import PAGE_TOKENS, leaf_tokens

CACHED_TOKENS = 4 * 2**20


def bytes_per_token(tree_name: str, node_tokens: int) -> float:
    """Growth of resident memory per token cached in nodes of `node_tokens` under the root: tokens, indices, nodes.

    Ask it first of a fresh process: memory that an earlier case gave back would hide the growth.
    """
    tree = PrefixTree(tree_name, pool_tokens=CACHED_TOKENS)
    _add_node(tree, 0, node_tokens)
    gc.collect()
    before = _resident_bytes()
    for number in range(1, CACHED_TOKENS // node_tokens):
        _add_node(tree, number, node_tokens)
    gc.collect()
    return (_resident_bytes() - before) / (CACHED_TOKENS - node_tokens)


def _add_node(tree: PrefixTree, number: int, node_tokens: int) -> None:
    tokens = as_request_tokens(leaf_tokens(number, node_tokens))
    tree.insert(tokens, tree.allocate(node_tokens // PAGE_TOKENS), held=0)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
