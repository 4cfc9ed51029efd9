"""One whole prefill request as SGLang's scheduler runs it: match, lock, allocate with eviction, insert, unlock."""

from __future__ import annotations

from array import array

import torch

from bench.sglang_reference.trees import PoolFullError, PrefixTree
from bench.workload import PAGE_TOKENS, Tokens


def as_request_tokens(tokens: Tokens) -> array[int]:
    """The tokens as an SGLang request holds them: int64 in an `array`."""
    return array("q", tokens.astype("<i8").tobytes())


def prefill(tree: PrefixTree, prompt: array[int]) -> int | None:
    """Serves `prompt` and leaves its whole pages cached; returns the hit length.

    At most len − 1 tokens match: one is left to compute. None, with nothing changed but recency and what was evicted,
    where the pool cannot hold the request.
    """
    hit, node = tree.match(prompt, limit=len(prompt) - 1)
    lock = tree.lock(node)
    try:
        fresh = tree.allocate(pages=-(-(len(prompt) - hit) // PAGE_TOKENS))
    except PoolFullError:
        tree.unlock(lock)
        return None
    table = torch.cat((tree.path_slots(node), fresh))
    tree.insert(prompt, table, held=hit)
    tree.unlock(lock)
    full = len(prompt) // PAGE_TOKENS * PAGE_TOKENS
    tree.slots.free_segment(table[full:], start_pos=full)
    return hit
