"""load_geometry: presets, files, checkpoint configs, and one clear line for everything else."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from radixd.gpu_pool.geometry import Geometry, GeometryError
from radixd.gpu_pool.presets import PRESETS, load_geometry

FULL_LAYERS = (0, 1, 2, *range(6, 75, 4))

GLM53_CONFIG: dict[str, object] = {
    "architectures": ["GlmMoeDsaForCausalLM"],
    "model_type": "glm_moe_dsa",
    "num_hidden_layers": 78,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "index_head_dim": 128,
    "index_n_heads": 32,
    "index_topk": 2048,
    "index_topk_freq": 4,
    "index_skip_topk_offset": 3,
    "num_nextn_predict_layers": 1,
    "indexer_types": ["full" if layer in FULL_LAYERS else "shared" for layer in range(78)],
}

LLAMA_CONFIG: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}


def _load(folder: Path, config: Mapping[str, object]) -> Geometry:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return load_geometry(str(path))


def _without(config: dict[str, object], *keys: str) -> dict[str, object]:
    return {key: value for key, value in config.items() if key not in keys}


def test_glm53s_own_config_gives_the_preset_and_says_that_the_layer_list_was_used(tmp_path: Path) -> None:
    geometry = _load(tmp_path, GLM53_CONFIG)
    assert geometry == load_geometry("glm-5.3")
    assert geometry.fingerprint == load_geometry("glm-5.3").fingerprint
    assert "indexer on 21 of 78 layers by indexer_types" in geometry.source


def test_the_layer_list_wins_over_the_frequency(tmp_path: Path) -> None:
    geometry = _load(tmp_path, {**GLM53_CONFIG, "index_topk_freq": 1, "index_skip_topk_offset": 0})
    assert geometry.component("index").layers == FULL_LAYERS


def test_frequency_and_offset_serve_where_no_list_is(tmp_path: Path) -> None:
    config = _without(GLM53_CONFIG, "indexer_types")
    geometry = _load(tmp_path, config)
    assert geometry == load_geometry("glm-5.3")
    assert "by index_topk_freq 4, index_skip_topk_offset 3" in geometry.source
    other = _load(tmp_path, {**config, "index_skip_topk_offset": 2}).component("index").layers
    assert other == (0, 1, *range(5, 78, 4))
    assert len(other) == 21, "as many layers, and other ones"


def test_a_pattern_string_serves_too(tmp_path: Path) -> None:
    pattern = "".join("F" if layer in FULL_LAYERS else "S" for layer in range(78))
    geometry = _load(tmp_path, {**_without(GLM53_CONFIG, "indexer_types"), "index_topk_pattern": pattern})
    assert geometry == load_geometry("glm-5.3")
    assert "index_topk_pattern" in geometry.source


def test_an_indexer_without_sharing_is_on_every_layer(tmp_path: Path) -> None:
    config = _without(GLM53_CONFIG, "indexer_types", "index_topk_freq", "index_skip_topk_offset")
    geometry = _load(tmp_path, {**config, "num_hidden_layers": 61})
    assert geometry == load_geometry("deepseek-v3.2")


def test_mla_without_an_indexer_is_a_bf16_latent(tmp_path: Path) -> None:
    config = {"num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "num_attention_heads": 128}
    geometry = _load(tmp_path, config)
    assert [component.name for component in geometry.components] == ["latent"]
    assert geometry.bytes_per_token == 61 * 2 * (512 + 64)


def test_plain_attention_counts_kv_heads(tmp_path: Path) -> None:
    assert _load(tmp_path, LLAMA_CONFIG) == load_geometry("llama-8b")
    multi_head = _load(tmp_path, _without(LLAMA_CONFIG, "num_key_value_heads"))
    assert multi_head.bytes_per_token == 4 * load_geometry("llama-8b").bytes_per_token
    wide = _load(tmp_path, {**LLAMA_CONFIG, "head_dim": 256})
    assert wide.bytes_per_token == 2 * load_geometry("llama-8b").bytes_per_token


def test_the_text_half_of_a_multimodal_config_is_read(tmp_path: Path) -> None:
    assert _load(tmp_path, {"model_type": "vlm", "text_config": LLAMA_CONFIG}) == load_geometry("llama-8b")


@pytest.mark.parametrize("name", PRESETS)
def test_a_geometry_written_to_a_file_comes_back(tmp_path: Path, name: str) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(load_geometry(name).to_dict()))
    assert load_geometry(str(path)) == load_geometry(name)


def test_toml_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("""
        page_size = 64
        num_layers = 2

        [[components]]
        name = "latent"
        arrangement = "rows"
        layers = [0, 1]
        regions = [
            { name = "nope", dtype = "fp8_e4m3", bytes_per_token = 16 },
            { name = "scale", dtype = "fp32", bytes_per_token = 4 },
            { name = "rope", dtype = "bf16", bytes_per_token = 12 },
        ]

        [[components]]
        name = "index"
        arrangement = "planes"
        layers = [0]
        regions = [
            { name = "key", dtype = "fp8_e4m3", bytes_per_token = 16 },
            { name = "scale", dtype = "fp32", bytes_per_token = 4 },
        ]
    """)
    geometry = load_geometry(str(path))
    assert geometry == load_geometry("tiny")
    assert geometry.name == "mine"
    assert str(path) in geometry.source


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({"model_type": "bert"}, "num_hidden_layers: missing"),
        ({"num_hidden_layers": "78"}, "num_hidden_layers: expected an integer"),
        ({"num_hidden_layers": 0}, r"num_hidden_layers: 0 is outside \[1"),
        (_without(GLM53_CONFIG, "qk_rope_head_dim"), "qk_rope_head_dim: missing"),
        ({**GLM53_CONFIG, "kv_lora_rank": 500}, "kv_lora_rank 500 is no multiple of 128"),
        ({**GLM53_CONFIG, "indexer_types": ["full"] * 77}, "indexer_types has 77 entries for num_hidden_layers 78"),
        ({**GLM53_CONFIG, "indexer_types": ["half"] * 78}, r"indexer_types\[0\]: 'half' is neither 'full'"),
        ({**GLM53_CONFIG, "indexer_types": ["shared"] * 78}, "layers must be a non-empty"),
        (_without(GLM53_CONFIG, "indexer_types", "index_skip_topk_offset"), "does not say which layers are full"),
        ({**GLM53_CONFIG, "index_kpool": 4}, "index_kpool 4"),
        (_without(LLAMA_CONFIG, "num_attention_heads"), "num_attention_heads: missing"),
        ({**LLAMA_CONFIG, "num_attention_heads": 33}, "hidden_size: 4096 is no multiple of num_attention_heads 33"),
        ({**LLAMA_CONFIG, "layer_types": ["linear_attention"] * 32}, r"layer_types\[0\]: 'linear_attention'"),
    ],
)
def test_a_config_that_does_not_tell_is_refused_by_field(tmp_path: Path, config: dict[str, object], names: str) -> None:
    with pytest.raises(GeometryError, match=names) as refused:
        _load(tmp_path, config)
    assert str(tmp_path) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("file", "content", "names"),
    [
        ("x.json", "{", "x.json"),
        ("x.json", "[]", "expected a table"),
        ("x.json", "[" * 100_000, "x.json"),
        ("x.toml", "= 3", "x.toml"),
        ("x.json", '{"components": []}', "page_size: missing"),
    ],
)
def test_nonsense_files_are_one_line(tmp_path: Path, file: str, content: str, names: str) -> None:
    (tmp_path / file).write_text(content)
    with pytest.raises(GeometryError, match=names) as refused:
        load_geometry(str(tmp_path / file))
    assert "\n" not in str(refused.value)


def test_an_unknown_name_lists_the_presets(tmp_path: Path) -> None:
    for name in ("glm-5.4", "", str(tmp_path)):
        with pytest.raises(GeometryError, match=r"neither a preset \(glm-5\.3, .*tiny\) nor a file"):
            load_geometry(name)
