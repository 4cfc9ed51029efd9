"""The workloads that radixd and its references are both measured on. Standard library and numpy only.

A prompt is a one-dimensional uint32 array of token ids. Everything is seeded: two processes that ask alike get alike.
"""

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.uint32]

PAGE_TOKENS = 64
TRACE_BLOCK_TOKENS = 512

# The whole request: HEADS shared heads of HEAD_TOKENS, each prompt one of them and TAIL_TOKENS of its own.
POOL_TOKENS = 1_100_032
HEADS = 64
HEAD_TOKENS = 4_096
TAIL_TOKENS = 4_096 + PAGE_TOKENS // 2
PREFILLS_UNTIL_STEADY = 400
VOCABULARY = 150_000


def prefill_prompts(seed: int) -> Iterator[Tokens]:
    """Prompts of 8,224 tokens for ever, each with a head of 4,096 that came HEADS prompts before, too.

    On a pool of POOL_TOKENS, served one at a time, all after the first HEADS hit exactly HEAD_TOKENS, and all after
    PREFILLS_UNTIL_STEADY evict about what they allocate: 65 pages, the last of them half full and not cached.
    """
    random = np.random.default_rng(seed)
    heads = random.integers(VOCABULARY, size=(HEADS, HEAD_TOKENS), dtype=np.uint32)
    for number in count():
        tail = random.integers(VOCABULARY, size=TAIL_TOKENS, dtype=np.uint32)
        yield np.concatenate((heads[number % HEADS], tail))


def leaf_tokens(number: int, tokens: int) -> Tokens:
    """The `number`-th of many sequences of `tokens` tokens that share no token with each other (modulo 2³²)."""
    return (number * tokens + np.arange(tokens, dtype=np.uint64)).astype(np.uint32)


def node_ends(tokens: int, nodes: int) -> list[int]:
    """Where the `nodes` nodes of a cached prefix of `tokens` tokens end: whole pages, as even as they come."""
    pages = tokens // PAGE_TOKENS
    if tokens % PAGE_TOKENS or nodes > pages:
        raise ValueError(f"{tokens} tokens are no {nodes} nodes of whole {PAGE_TOKENS}-token pages")
    return [pages * (index + 1) // nodes * PAGE_TOKENS for index in range(nodes)]


def trace_prompts(path: Path, requests: int | None = None) -> Iterator[Tokens]:
    """The prompts of a Mooncake-format trace, in file order; the first `requests` of them.

    Each line's `hash_ids` stand for 512 tokens each, the last block cut off at `input_length`. Id h becomes the tokens
    512·h … 512·h + 511 (modulo 2³²), so two prompts share tokens exactly where they share ids.
    """
    within_block = np.arange(TRACE_BLOCK_TOKENS, dtype=np.uint32)
    with path.open() as lines:
        for number, line in enumerate(lines):
            if number == requests:
                return
            record = json.loads(line)
            starts = np.asarray(record["hash_ids"], dtype=np.uint64) * TRACE_BLOCK_TOKENS
            tokens = (starts.astype(np.uint32)[:, None] + within_block).reshape(-1)
            yield tokens[: record["input_length"]]
