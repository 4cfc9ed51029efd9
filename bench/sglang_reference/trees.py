"""SGLang's three prefix caches behind the verbs that the benchmarks time.

Tokens are `array('q')`, as an SGLang request holds them; KV indices are flat int64 tensors, one a token. Importing this
module needs the interpreter of bench/sglang_venv.sh.
"""

from __future__ import annotations

from array import array

from bench.sglang_reference import imports
from bench.workload import PAGE_TOKENS

imports.prepare()

import torch  # noqa: E402
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator  # noqa: E402
from sglang.srt.mem_cache.base_prefix_cache import (  # noqa: E402
    BasePrefixCache,
    EvictParams,
    InsertParams,
    MatchPrefixParams,
    TreeLock,
)
from sglang.srt.mem_cache.cache_init_params import CacheInitParams  # noqa: E402
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey  # noqa: E402
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType  # noqa: E402
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache  # noqa: E402

TREES = ("radix", "unified-py", "unified-rust")

# On a busy machine a copy that torch splits over threads waits a scheduler quantum (8 ms) for the other half.
torch.set_num_threads(1)


class PoolFullError(RuntimeError):
    """Free and evictable slots together are fewer than asked for; what was evictable is gone."""


class PrefixTree:
    """One of SGLang's trees (`TREES`) over its paged allocator with `pool_tokens` usable slots, under `lru`."""

    def __init__(self, name: str, pool_tokens: int) -> None:
        self.slots = PagedTokenToKVPoolAllocator(pool_tokens, PAGE_TOKENS, torch.bfloat16, "cpu", None, need_sort=False)
        self._cache = _build(name, self.slots)
        # The unified trees free the copies that an insert found to be duplicates; `radix` leaves that to its caller.
        self._caller_frees_duplicates = name == "radix"

    def match(self, tokens: array[int], limit: int) -> tuple[int, object]:
        """The cached length of tokens[:limit], in whole pages, and the node it ends on; refreshes recency."""
        result = self._cache.match_prefix(MatchPrefixParams(key=RadixKey(tokens, limit=limit)))
        return result.device_prefix_len, result.last_device_node

    def path_slots(self, node: object) -> torch.Tensor:
        """The KV indices from the root to `node`."""
        return self._cache.path_device_indices(node)

    def lock(self, node: object) -> TreeLock:
        return self._cache.lock(node)

    def unlock(self, lock: TreeLock) -> None:
        self._cache.unlock(lock)

    def evict(self, tokens: int) -> int:
        """Evicts whole leaves until at least `tokens` slots came free; returns how many did."""
        return self._cache.evict_for_alloc(EvictParams(num_tokens=tokens)).num_tokens_evicted

    def allocate(self, pages: int) -> torch.Tensor:
        """`pages` pages of slots, evicting what is missing. Raises PoolFullError where that does not suffice."""
        shortfall = pages * PAGE_TOKENS - self.slots.available_size()
        if shortfall > 0:
            self.evict(shortfall)
        slots = self.slots.alloc(pages * PAGE_TOKENS)
        if slots is None:
            raise PoolFullError(f"{pages} pages do not fit beside what is locked")
        return slots

    def insert(self, tokens: array[int], slots: torch.Tensor, held: int) -> int:
        """Publishes the whole pages of `tokens`, whose first `held` tokens the caller matched and locked.

        Returns how much was there already; copies between `held` and that are freed.
        """
        key = RadixKey(tokens).page_aligned(PAGE_TOKENS)
        params = InsertParams(key=key, value=slots[: len(key)], prev_prefix_len=held, inserted_len=held)
        cached = self._cache.insert(params).prefix_len
        if self._caller_frees_duplicates and cached > held:
            self.slots.free_segment(slots[held:cached], start_pos=held)
        return cached

    def evictable(self) -> int:
        """Cached tokens under no lock."""
        return self._cache.evictable_size()


def _build(name: str, slots: PagedTokenToKVPoolAllocator) -> BasePrefixCache:
    if name not in TREES:
        raise ValueError(f"tree is {name!r}; it must be one of {', '.join(TREES)}")
    params = CacheInitParams(
        disable=False, req_to_token_pool=None, token_to_kv_pool_allocator=slots, page_size=PAGE_TOKENS
    )
    if name == "radix":
        return RadixCache(params)
    params.tree_components = (ComponentType.FULL,)
    params.tree_core_backend = {"unified-py": "python", "unified-rust": "rust"}[name]
    cache = UnifiedRadixCache(params)
    if name == "unified-rust" and type(cache.tree_core).__name__ != "RustUnifiedTreeCore":
        raise RuntimeError("SGLang fell back to its Python core: its Rust extension does not load here")
    return cache
