"""Geometry from a checkpoint's Hugging Face config.json."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from radixd.gpu_pool import fields
from radixd.gpu_pool.geometry import MAX_LAYERS, Component, Geometry, GeometryError, Region

PAGE_SIZE = 64
"""The one physical page size that the DSA indexer kernels accept on CUDA; plain attention takes it too."""

QUANTISED_BLOCK = 128
"""fp8_ds_mla and index K keep one fp32 scale for each so many values."""

INDEX_HEADS = 32
"""GLM-5.3's."""


def latent_component(num_layers: int, lora_rank: int = 512, rope_dim: int = 64) -> Component:
    """The MLA latent as `fp8_ds_mla` on all layers: fp8 NoPE | fp32 scales | bf16 RoPE in one row a token."""
    _check_blocks("kv_lora_rank", lora_rank)
    regions = (
        Region("nope", "fp8_e4m3", lora_rank),
        Region("scale", "fp32", 4 * lora_rank // QUANTISED_BLOCK),
        Region("rope", "bf16", 2 * rope_dim),
    )
    return Component("latent", tuple(range(num_layers)), regions, "rows")


def index_component(layers: tuple[int, ...], head_dim: int = 128) -> Component:
    """The indexer's K cache on `layers`: a page's fp8 keys, then its fp32 scales."""
    _check_blocks("index_head_dim", head_dim)
    regions = (Region("key", "fp8_e4m3", head_dim), Region("scale", "fp32", 4 * head_dim // QUANTISED_BLOCK))
    return Component("index", layers, regions, "planes")


def geometry_from_hf(config: Mapping[str, object], path: Path) -> Geometry:
    """Read MLA with or without a DSA indexer, or plain multi-head and grouped-query attention.

    MTP layers (`num_nextn_predict_layers`) are left out: whether an engine runs them is its own choice, and their
    geometry is a file or the preset glm-5.3-mtp. Raises a ValueError naming the field.
    """
    if "num_hidden_layers" not in config and isinstance(config.get("text_config"), Mapping):
        config = fields.mapping(config["text_config"], "text_config")
    num_layers = _size(config, "num_hidden_layers", MAX_LAYERS)
    read = _plain_attention if config.get("kv_lora_rank") is None else _mla
    components, how = read(config, num_layers)
    name = config.get("model_type")
    return Geometry(
        name=name if isinstance(name, str) and name else path.parent.name or path.stem,
        page_size=PAGE_SIZE,
        num_layers=num_layers,
        components=components,
        source=f"{path}: {how}",
    )


def indexer_heads(config: Mapping[str, object]) -> int:
    """Heads with which the lightning indexer scores a pair of tokens; 32 where the config does not say."""
    if "index_n_heads" not in config and isinstance(config.get("text_config"), Mapping):
        config = fields.mapping(config["text_config"], "text_config")
    return INDEX_HEADS if config.get("index_n_heads") is None else _size(config, "index_n_heads")


def _mla(config: Mapping[str, object], num_layers: int) -> tuple[tuple[Component, ...], str]:
    lora_rank = _size(config, "kv_lora_rank")
    rope_dim = _size(config, "qk_rope_head_dim")
    if config.get("index_head_dim") is None and config.get("index_topk") is None:
        regions = (Region("nope", "bf16", 2 * lora_rank), Region("rope", "bf16", 2 * rope_dim))
        return (Component("latent", tuple(range(num_layers)), regions, "rows"),), "MLA in bf16, no indexer"
    if config.get("index_kpool") not in (None, 1):
        raise GeometryError(
            f"index_kpool {config['index_kpool']}: several tokens share one index entry, which has no place in a "
            "token's slot; only 1 is supported"
        )
    full, how = _full_layers(config, num_layers)
    latent = latent_component(num_layers, lora_rank, rope_dim)
    index = index_component(full, _size(config, "index_head_dim"))
    return (latent, index), f"MLA as fp8_ds_mla, indexer on {len(full)} of {num_layers} layers by {how}"


def _full_layers(config: Mapping[str, object], num_layers: int) -> tuple[tuple[int, ...], str]:
    """The layers that write an indexer K cache, and the field that told: the list itself before any rule for it."""
    for key, full, shared in (("indexer_types", "full", "shared"), ("index_topk_pattern", "F", "S")):
        if config.get(key) is not None:
            value = config[key]
            kinds = value if isinstance(value, str) else fields.sequence(config, key, "", MAX_LAYERS)
            return _listed_layers(key, kinds, full, shared, num_layers), key
    if config.get("index_topk_freq") in (None, 1):
        return tuple(range(num_layers)), "index_topk_freq 1 (the default)"
    frequency = _size(config, "index_topk_freq", num_layers)
    # Engines differ in the default offset, and several offsets give equally many layers: never guess it.
    if config.get("index_skip_topk_offset") is None:
        raise GeometryError(
            f"index_topk_freq {frequency} without index_skip_topk_offset does not say which layers are full: "
            "add index_skip_topk_offset, or better indexer_types with one 'full' or 'shared' a layer"
        )
    offset = fields.integer(config, "index_skip_topk_offset", "", low=0, high=num_layers)
    layers = tuple(layer for layer in range(num_layers) if max(layer - offset + 1, 0) % frequency == 0)
    return layers, f"index_topk_freq {frequency}, index_skip_topk_offset {offset}"


def _listed_layers(key: str, kinds: Sequence[object], full: str, shared: str, num_layers: int) -> tuple[int, ...]:
    if len(kinds) != num_layers:
        raise GeometryError(f"{key} has {len(kinds)} entries for num_hidden_layers {num_layers}: one a layer is needed")
    for layer, kind in enumerate(kinds):
        if kind not in (full, shared):
            raise GeometryError(f"{key}[{layer}]: {kind!r:.40} is neither {full!r} nor {shared!r}")
    return tuple(layer for layer, kind in enumerate(kinds) if kind == full)


def _plain_attention(config: Mapping[str, object], num_layers: int) -> tuple[tuple[Component, ...], str]:
    if config.get("layer_types") is not None:
        for layer, kind in enumerate(fields.sequence(config, "layer_types", "", MAX_LAYERS)):
            if kind not in ("full_attention", "sliding_attention", "chunked_attention"):
                raise GeometryError(
                    f"layer_types[{layer}]: {kind!r:.40} keeps no KV for each token; "
                    "describe the layers that do in a TOML geometry"
                )
    heads = _size(config, "num_attention_heads")
    kv_heads = heads if config.get("num_key_value_heads") is None else _size(config, "num_key_value_heads")
    if config.get("head_dim") is None:
        hidden = _size(config, "hidden_size")
        if hidden % heads:
            raise GeometryError(
                f"hidden_size: {hidden} is no multiple of num_attention_heads {heads}; say head_dim too"
            )
        head_dim = hidden // heads
    else:
        head_dim = _size(config, "head_dim")
    bytes_per_token = 2 * kv_heads * head_dim
    regions = (Region("k", "bf16", bytes_per_token), Region("v", "bf16", bytes_per_token))
    component = Component("kv", tuple(range(num_layers)), regions, "planes")
    return (component,), f"plain attention in bf16, {kv_heads} KV heads x {head_dim} on {num_layers} layers"


def _size(config: Mapping[str, object], key: str, high: int = 2**20) -> int:
    return fields.integer(config, key, "", low=1, high=high)


def _check_blocks(key: str, size: int) -> None:
    if size % QUANTISED_BLOCK:
        raise GeometryError(f"{key} {size} is no multiple of {QUANTISED_BLOCK}, the block that shares one scale")
