"""The same memory as SGLang and as vLLM count it. Both are the pool's own arithmetic under other names."""

from dataclasses import dataclass

from radixd.gpu_pool.budget.cost import Cost


@dataclass(frozen=True)
class SGLangView:
    """SGLang 0.5.23: tokens first, then whole pages (model_executor/pool_configurator.py)."""

    cell_size: int
    max_total_num_tokens: int
    """Of one rank. It allocates one page more, for padding, beyond the bytes that it was given."""


@dataclass(frozen=True)
class VLLMView:
    """vLLM 0.32: blocks (v1/core/kv_cache_utils.py)."""

    page_size_bytes: int
    """Of a block over all layers."""
    num_blocks: int
    """The null block, which no request gets, is one of them."""


def as_sglang_counts(cost: Cost, available_bytes: int) -> SGLangView:
    """What SGLang makes of `available_bytes`: tokens = available // cell, then // page * page."""
    tokens = available_bytes // cost.cell
    return SGLangView(cost.cell, tokens // cost.page_slots * cost.page_slots)


def as_vllm_counts(cost: Cost, available_bytes: int) -> VLLMView:
    """What vLLM makes of `available_bytes` in this layout.

    Under DCP that is SGLang's layout, with the index replicated; vLLM 0.32 would shard it and fit more.
    """
    return VLLMView(cost.page_bytes, available_bytes // cost.page_bytes)
