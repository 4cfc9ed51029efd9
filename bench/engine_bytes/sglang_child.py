"""SGLang's own figures for one geometry: a JSON question on standard input, a JSON answer on standard output.

{"config": a HF config, "available": bytes, "dcp": 1, "draft_layers": 0, "logits": [rows, columns, total, fraction]}

SGLang's sizing code is imported unchanged, without its engine: parallel sizes and backends, which it reads from the
running engine's context, are given to it here. Run in the interpreter of bench/sglang_venv.sh from the repository's
root: python -m bench.engine_bytes.sglang_child
"""

import json
import sys
from importlib.metadata import version
from types import ModuleType, SimpleNamespace

from bench.engine_bytes.placeholders import stand_in

ABSENT = (
    *("IPython", "PIL", "aiter", "pybase64", "requests", "starlette", "torchcodec", "tqdm", "transformers", "triton"),
    "zmq",
)
UNUSED = (
    "sglang.kernels",
    "sglang.srt.configs",
    "sglang.srt.distributed",
    "sglang.srt.layers.attention.dsa",
    "sglang.srt.layers.dp_attention",
    "sglang.srt.layers.moe",
    "sglang.srt.layers.quantization",
    "sglang.srt.mem_cache.deepseek_v4_memory_pool",
    "sglang.srt.server_args",
    "sglang.srt.utils.hf_transformers",
    "sglang.srt.utils.hf_transformers_utils",
)
KERNEL_PAGE = 64
PROBE_PAGES = 3


def answer(question: dict) -> dict:
    """Cell size, capacity, the buffers of a small pool, and the logits' budget and chunks."""
    stand_in(("sglang", "sglang.srt", "sglang.srt.configs"), ABSENT, UNUSED, used=("sglang.srt.configs.model_config",))
    from sglang.srt.layers.attention import mqa_logits_utils
    from sglang.srt.layers.cp import utils as cp_utils
    from sglang.srt.mem_cache import kv_cache_configurator, memory_pool, page_interleave
    from sglang.srt.model_executor import pool_configurator

    modules = (mqa_logits_utils, cp_utils, kv_cache_configurator, memory_pool, page_interleave, pool_configurator)
    _give_context(modules, question)
    kvc = _configurator(question)
    pool_configurator.mambaish_config = lambda config: None
    pool_configurator.compute_page_shard_scratch_bytes = lambda kvc, include_mtp=False: 0
    sizing = pool_configurator.DefaultPoolConfigurator(kvc)
    capacity = sizing.calculate_pool_sizes(question["available"], _page(kvc)).max_total_num_tokens
    return {
        "version": version("sglang"),
        "cell_size": sizing._cell_size,
        "index_bytes": sizing._compute_dsa_indexer_cell_size(kvc=kvc, num_layers=kvc.layer_info.num_effective_layers),
        "latent_row_bytes": kv_cache_configurator.calculate_mla_kv_cache_dim(
            model_config=kvc.model_config, kv_cache_dtype=kvc.kv_cache_dtype
        ),
        "max_total_num_tokens": capacity,
        **_buffers(memory_pool.DSATokenToKVPool, kvc),
        **_logits(mqa_logits_utils, *question["logits"]),
    }


def _give_context(modules: tuple[ModuleType, ...], question: dict) -> None:
    context = {
        "get_parallel": SimpleNamespace(
            attn_dcp_size=question["dcp"], attn_tp_size=1, attn_cp_size=1, enable_dsa_cache_layer_split=False
        ),
        "get_memory": SimpleNamespace(
            enable_hisparse=False, enable_hierarchical_cache=False, enable_unified_cache_external_linker=False
        ),
        "get_exec": SimpleNamespace(
            kernel=SimpleNamespace(dsa_prefill_backend="flashmla_sparse", dsa_decode_backend="flashmla_kv")
        ),
        "get_disagg": SimpleNamespace(disaggregation_mode="null"),
        "get_schedule": SimpleNamespace(mem_fraction_static=question["logits"][3], max_total_tokens=None),
    }
    for module in modules:
        for name, value in context.items():
            if hasattr(module, name):
                setattr(module, name, lambda value=value: value)


def _configurator(question: dict) -> SimpleNamespace:
    """What the sizing code asks of SGLang's KVCacheConfigurator."""
    import torch

    config = SimpleNamespace(**question["config"])
    layers = config.num_hidden_layers
    drafts = question["draft_layers"]
    model = SimpleNamespace(
        hf_config=config,
        kv_lora_rank=config.kv_lora_rank,
        qk_rope_head_dim=config.qk_rope_head_dim,
        context_len=2**20,
    )
    return SimpleNamespace(
        model_config=model,
        kv_cache_dtype=torch.float8_e4m3fn,
        kv_cache_dtype_str="fp8_e4m3",
        use_mla_backend=True,
        is_draft_worker=False,
        mambaish_config=None,
        pp_size=1,
        server_args=SimpleNamespace(enable_hisparse=False),
        layer_info=SimpleNamespace(num_effective_layers=layers, start_layer=0, end_layer=layers),
        spec_algorithm=SimpleNamespace(
            is_eagle=lambda: drafts > 0, is_standalone=lambda: False, is_dflash_family=lambda: False
        ),
        spec_aux_config=SimpleNamespace(eagle_draft_num_layers=drafts),
        fused_entry_bytes=lambda name: None,
    )


def _page(kvc: SimpleNamespace) -> int:
    """Tokens, as SGLang's overrides for DSA set them."""
    return KERNEL_PAGE * getattr(kvc.model_config.hf_config, "index_kpool", 1)


def _buffers(pool_class: type, kvc: SimpleNamespace) -> dict:
    """The real pool's tensors, of a few pages on the CPU."""
    import torch
    from sglang.srt.configs.model_config import dsa_layer_skips_topk

    config, layers = kvc.model_config.hf_config, kvc.layer_info.num_effective_layers
    pool = pool_class(
        size=PROBE_PAGES * _page(kvc),
        page_size=_page(kvc),
        kv_lora_rank=config.kv_lora_rank,
        dtype=torch.float8_e4m3fn,
        qk_rope_head_dim=config.qk_rope_head_dim,
        layer_num=layers,
        device="cpu",
        index_head_dim=config.index_head_dim,
        enable_memory_saver=False,
        kv_cache_dim=656,
        index_kpool=getattr(config, "index_kpool", 1),
        skip_topk_layers=[dsa_layer_skips_topk(config, layer) for layer in range(layers)],
    )
    return {
        "latent_buffer_bytes": sum(buffer.nbytes for buffer in pool.kv_buffer),
        "index_buffer_bytes": sum(buffer.nbytes for buffer in pool.index_k_with_scale_buffer),
        "index_layers": [i for i, buffer in enumerate(pool.index_k_with_scale_buffer) if len(buffer)],
        "index_slots": pool.index_buf_size,
    }


def _logits(utils: ModuleType, rows: int, columns: int, total: int, fraction: float) -> dict:
    properties = SimpleNamespace(total_memory=total)
    utils.get_device_module = lambda: SimpleNamespace(get_device_properties=lambda index: properties)
    budget = utils.mqa_logits_static_budget_bytes(device_index=0)
    row = utils.mqa_logits_row_bytes(columns)
    return {
        "logits_budget": budget,
        "logits_row_bytes": row,
        "logits_chunk_rows": utils.mqa_logits_rows_per_chunk(num_rows=rows, row_bytes=row, budget_bytes=budget),
        "logits_checked": [
            utils.mqa_logits_needs_budget_check(num_rows=elements, num_cols=1) for elements in (7_999_999, 8_000_000)
        ],
    }


if __name__ == "__main__":
    print(json.dumps(answer(json.load(sys.stdin))))
