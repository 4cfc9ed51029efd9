"""Geometry: every byte of GLM53.md's tables, what the fingerprint sees, and what is refused."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixd.gpu_pool.fields import FieldError
from radixd.gpu_pool.geometry import Component, Geometry, GeometryError, Region
from radixd.gpu_pool.presets import PRESETS, load_geometry

GLM = load_geometry("glm-5.3")
FULL_LAYERS = (0, 1, 2, 6, 10, 14, 18, 22, 26, 30, 34, 38, 42, 46, 50, 54, 58, 62, 66, 70, 74)


@pytest.mark.parametrize(
    ("name", "bytes_per_token", "bytes_per_page"),
    [
        ("glm-5.3", 53_940, 3_452_160),
        ("glm-5.3-mtp", 54_728, 3_502_592),
        ("deepseek-v3.2", 61 * (656 + 132), 64 * 61 * (656 + 132)),
        ("llama-8b", 32 * 2 * 8 * 128 * 2, 64 * 131_072),
        ("tiny", 84, 5_376),
    ],
)
def test_presets_have_the_bytes_of_their_models(name: str, bytes_per_token: int, bytes_per_page: int) -> None:
    geometry = load_geometry(name)
    assert geometry.name == name
    assert geometry.bytes_per_token == bytes_per_token
    assert geometry.bytes_per_page == bytes_per_page


def test_glm53_token_is_a_656_byte_latent_on_78_layers_and_a_132_byte_key_on_21() -> None:
    latent, index = GLM.component("latent"), GLM.component("index")
    assert [(r.name, r.bytes_per_token, r.width) for r in latent.regions] == [
        ("nope", 512, 512),
        ("scale", 16, 4),
        ("rope", 128, 64),
    ]
    assert (latent.bytes_per_token, latent.layers) == (656, tuple(range(78)))
    assert (index.bytes_per_token, index.layers) == (132, FULL_LAYERS)
    assert 78 * 656 == 51_168
    assert 21 * 132 == 2_772


def test_mtp_layer_has_its_own_latent_and_indexer() -> None:
    mtp = load_geometry("glm-5.3-mtp")
    assert mtp.component("latent").layers == tuple(range(79))
    assert mtp.component("index").layers == (*FULL_LAYERS, 78)


@pytest.mark.parametrize(
    ("tokens", "pages", "latent", "index", "total"),
    [
        (8_192, 128, 419_168_256, 22_708_224, 441_876_480),
        (131_072, 2_048, 6_706_692_096, 363_331_584, 7_070_023_680),
        (524_288, 8_192, 26_826_768_384, 1_453_326_336, 28_280_094_720),
        (1_048_576, 16_384, 53_653_536_768, 2_906_652_672, 56_560_189_440),
    ],
)
def test_glm53_contexts_cost_the_published_bytes(tokens: int, pages: int, latent: int, index: int, total: int) -> None:
    assert tokens // GLM.page_size == pages
    per_component = {c.name: len(c.layers) * GLM.bytes_per_component_page(c) * pages for c in GLM.components}
    assert per_component == {"latent": latent, "index": index}
    assert pages * GLM.bytes_per_page == total


@pytest.mark.parametrize("name", PRESETS)
def test_plain_data_round_trips_through_json(name: str) -> None:
    geometry = load_geometry(name)
    again = Geometry.from_dict(json.loads(json.dumps(geometry.to_dict())))
    assert again == geometry
    assert (again.name, again.source) == (geometry.name, geometry.source)
    assert again.fingerprint == geometry.fingerprint


def test_fingerprint_is_16_bytes_and_the_same_in_every_process() -> None:
    # A fixed value: a change of it is a change of what every journal and session on disk or wire means.
    assert GLM.fingerprint.hex() == "4f45cdaab6a8e8f6bae87da5d5b54d15"
    assert len({load_geometry(name).fingerprint for name in PRESETS}) == len(PRESETS)


def test_fingerprint_ignores_labels() -> None:
    assert dataclasses.replace(GLM, name="other", source="elsewhere").fingerprint == GLM.fingerprint


def _with_index(layers: tuple[int, ...]) -> Geometry:
    latent, index = GLM.components
    return dataclasses.replace(GLM, components=(latent, dataclasses.replace(index, layers=layers)))


def test_fingerprint_sees_each_property_that_moves_a_byte() -> None:
    latent, index = GLM.components
    nope, scale, rope = latent.regions
    offset_two = tuple(layer for layer in range(78) if max(layer - 1, 0) % 4 == 0)
    assert len(offset_two) == 21
    changed = [
        _with_index(offset_two),
        dataclasses.replace(GLM, page_size=32),
        dataclasses.replace(GLM, num_layers=79),
        dataclasses.replace(GLM, components=(index, latent)),
        dataclasses.replace(GLM, components=(dataclasses.replace(latent, regions=(rope, scale, nope)), index)),
        dataclasses.replace(GLM, components=(dataclasses.replace(latent, arrangement="planes"), index)),
        dataclasses.replace(
            GLM, components=(dataclasses.replace(latent, regions=(nope, scale, Region("rope", "fp16", 128))), index)
        ),
        dataclasses.replace(
            GLM, components=(dataclasses.replace(latent, regions=(nope, scale, Region("rope", "bf16", 144))), index)
        ),
    ]
    assert len({g.fingerprint for g in [GLM, *changed]}) == len(changed) + 1


@given(st.sets(st.integers(0, 77), min_size=1).map(lambda s: tuple(sorted(s))))
def test_fingerprint_differs_for_every_other_layer_list(layers: tuple[int, ...]) -> None:
    assert (_with_index(layers).fingerprint == GLM.fingerprint) == (layers == FULL_LAYERS)


KEY = Region("key", "fp8_e4m3", 16)


def _one(component: Component, page_size: int = 64, num_layers: int = 2) -> Geometry:
    return Geometry("one", page_size=page_size, num_layers=num_layers, components=(component,))


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: Region("scale", "fp32", 6), "scale.*multiple of 4"),
        (lambda: Region("scale", "fp32", 0), "scale.*positive"),
        (lambda: Region("scale", "fp64", 8), "fp64"),  # type: ignore[arg-type]
        (lambda: Component("c", (), (KEY,), "rows"), "layers"),
        (lambda: Component("c", (1, 0), (KEY,), "rows"), "ascending"),
        (lambda: Component("c", (1, 1), (KEY,), "rows"), "ascending"),
        (lambda: Component("c", (0,), (KEY, KEY), "rows"), "distinct"),
        (lambda: Component("c", (0,), (KEY,), "columns"), "columns"),  # type: ignore[arg-type]
        (lambda: _one(Component("c", (0, 2), (KEY,), "rows")), r"outside \[0, 1\]"),
        (lambda: _one(Component("c", (-1, 0), (KEY,), "rows")), r"outside \[0, 1\]"),
        (lambda: _one(Component("c", (0,), (KEY,), "rows"), page_size=0), "page_size"),
        (lambda: _one(Component("c", (0,), (KEY,), "rows"), num_layers=0), "num_layers"),
        (
            lambda: _one(Component("c", (0,), (Region("a", "uint8", 1), Region("b", "fp32", 4)), "rows")),
            "region b would start at byte 1",
        ),
        (
            lambda: _one(Component("c", (0,), (Region("b", "fp32", 4), Region("a", "uint8", 1)), "rows")),
            "row of 5 bytes",
        ),
    ],
)
def test_impossible_geometries_are_refused_by_field_and_limit(make: object, names: str) -> None:
    assert callable(make)
    with pytest.raises(GeometryError, match=names):
        make()


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"page_size": "64"}, "page_size: expected an integer"),
        ({"page_size": True}, "page_size: expected an integer"),
        ({"components": 3}, "components: expected a list"),
        ({"components": [3]}, r"components\[0\]: expected a table"),
        ({"components": [{"name": "x"}]}, r"components\[0\]\.layers: missing"),
        ({"components": [{"name": "x", "layers": [0.5]}]}, r"components\[0\]\.layers: expected integers"),
        ({"name": ""}, "name: expected a string"),
    ],
)
def test_plain_data_of_the_wrong_shape_is_refused_by_field(change: dict[str, object], names: str) -> None:
    with pytest.raises(FieldError, match=names):
        Geometry.from_dict({**GLM.to_dict(), **change})


def test_asking_for_what_is_not_there_names_what_is() -> None:
    with pytest.raises(GeometryError, match="latent"):
        GLM.component("kv")
    with pytest.raises(GeometryError, match="rope"):
        GLM.component("latent").region("key")
