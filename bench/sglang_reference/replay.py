"""A trace through one of SGLang's trees, one request at a time, prompts only."""

from pathlib import Path
from time import perf_counter

from bench.sglang_reference.request import as_request_tokens, prefill
from bench.sglang_reference.trees import PrefixTree
from bench.workload import PAGE_TOKENS, trace_prompts


def replay(tree_name: str, pool_tokens: int, trace: Path, requests: int | None) -> dict[str, int | float]:
    """Counts hits over the first `requests` prompts of `trace` (None: all of them), under `lru`."""
    tree = PrefixTree(tree_name, pool_tokens)
    counts = {"requests": 0, "prompt_tokens": 0, "hit_tokens": 0, "refused": 0}
    start = perf_counter()
    for prompt in trace_prompts(trace, requests):
        hit = prefill(tree, as_request_tokens(prompt))
        counts["requests"] += 1
        counts["prompt_tokens"] += len(prompt)
        counts["hit_tokens"] += hit or 0
        counts["refused"] += hit is None
    return {**counts, "cached_pages": tree.evictable() // PAGE_TOKENS, "seconds": perf_counter() - start}
