"""The geometries known by name, and the one way to get a geometry from what an operator wrote."""

import difflib
import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

from radixd.gpu_pool import fields
from radixd.gpu_pool.geometry import Arrangement, Component, Geometry, GeometryError, Region
from radixd.gpu_pool.hf_config import (
    INDEX_HEADS,
    geometry_from_hf,
    index_component,
    indexer_heads,
    latent_component,
)

MAX_FILE_BYTES = 16 * 2**20


def _glm53(mtp_layers: int = 0) -> Geometry:
    """GLM-5.3 (`GlmMoeDsaForCausalLM`): MLA on 78 layers, an indexer on 21; its MTP layer 78 has both of its own."""
    mtp = tuple(range(78, 78 + mtp_layers))
    full = (0, 1, 2, *range(6, 75, 4))
    return Geometry(
        name="glm-5.3-mtp" if mtp else "glm-5.3",
        page_size=64,
        num_layers=78 + mtp_layers,
        components=(latent_component(78 + mtp_layers), index_component((*full, *mtp))),
        source="preset",
    )


def _deepseek_v32() -> Geometry:
    """DeepSeek-V3.2: MLA and an indexer on each of 61 layers."""
    return Geometry(
        name="deepseek-v3.2",
        page_size=64,
        num_layers=61,
        components=(latent_component(61), index_component(tuple(range(61)))),
        source="preset",
    )


def _llama_8b() -> Geometry:
    """Llama 3.1 8B: grouped-query attention, 32 layers of 8 KV heads x 128 in bf16, K and V."""
    regions = (Region("k", "bf16", 8 * 128 * 2), Region("v", "bf16", 8 * 128 * 2))
    component = Component("kv", tuple(range(32)), regions, "planes")
    return Geometry("llama-8b", page_size=64, num_layers=32, components=(component,), source="preset")


def _tiny() -> Geometry:
    """For byte-checked tests and long traces: GLM-5.3's regions in 84 bytes a token."""
    rows: Arrangement = "rows"
    latent = (Region("nope", "fp8_e4m3", 16), Region("scale", "fp32", 4), Region("rope", "bf16", 12))
    index = (Region("key", "fp8_e4m3", 16), Region("scale", "fp32", 4))
    return Geometry(
        name="tiny",
        page_size=64,
        num_layers=2,
        components=(Component("latent", (0, 1), latent, rows), Component("index", (0,), index, "planes")),
        source="preset",
    )


PRESETS: Mapping[str, Callable[[], Geometry]] = {
    "glm-5.3": _glm53,
    "glm-5.3-mtp": lambda: _glm53(mtp_layers=1),
    "deepseek-v3.2": _deepseek_v32,
    "llama-8b": _llama_8b,
    "tiny": _tiny,
}


def load_geometry(name_or_path: str) -> Geometry:
    """The geometry of a preset's name, of a TOML or JSON file in `Geometry.to_dict`'s form, or of a HF config.json.

    `Geometry.source` says which it was and how it was read. Raises a ValueError whose one line names the input,
    the field and the way out.
    """
    if name_or_path in PRESETS:
        return PRESETS[name_or_path]()
    path = Path(name_or_path)
    if not path.is_file():
        near = difflib.get_close_matches(path.name, PRESETS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise GeometryError(
            f"geometry {name_or_path!r} is neither a preset ({', '.join(PRESETS)}) nor a file (.toml, .json){hint}"
        )
    try:
        data = _read(path)
        if "components" in data:
            return Geometry.from_dict({"name": path.stem, "source": f"{path}", **data})
        return geometry_from_hf(data, path)
    except (ValueError, RecursionError) as error:
        raise GeometryError(f"{path}: {error}") from error


def load_indexer_heads(name_or_path: str) -> int:
    """Heads of the indexer, which are no part of a geometry: of a preset, or of a HF config.json."""
    if name_or_path in PRESETS:
        return 64 if name_or_path == "deepseek-v3.2" else INDEX_HEADS
    return indexer_heads(_read(Path(name_or_path)))


def _read(path: Path) -> Mapping[str, object]:
    if path.stat().st_size > MAX_FILE_BYTES:
        raise GeometryError(f"larger than {MAX_FILE_BYTES} bytes: this is no geometry and no config.json")
    content = path.read_text(encoding="utf-8")
    data: object = tomllib.loads(content) if path.suffix == ".toml" else json.loads(content)
    return fields.mapping(data, "the file")
