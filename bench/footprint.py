"""Host memory that a cached token costs: python -m bench.footprint 64 prints it for nodes of 64 tokens.

A process of its own: memory that something earlier gave back would hide the growth.
"""

import gc
import os
import subprocess
import sys
from pathlib import Path

from bench.tree_cases import add, new_cache
from bench.workload import leaf_tokens

CACHED_TOKENS = 4 * 2**20


def bytes_per_token(node_tokens: int) -> float:
    """Growth of resident memory per token cached in nodes of `node_tokens` under the root, in a new process."""
    command = [sys.executable, "-m", "bench.footprint", str(node_tokens)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def _measure(node_tokens: int) -> float:
    cache = new_cache(CACHED_TOKENS)
    add(cache, leaf_tokens(0, node_tokens).tobytes())
    gc.collect()
    before = _resident_bytes()
    for number in range(1, CACHED_TOKENS // node_tokens):
        add(cache, leaf_tokens(number, node_tokens).tobytes())
    gc.collect()
    return (_resident_bytes() - before) / (CACHED_TOKENS - node_tokens)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    print(_measure(int(sys.argv[1])))
