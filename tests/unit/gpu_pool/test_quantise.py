"""The quantised reference store against a per-block one in plain Python, and against the raw bytes."""

import math
import struct
from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from radixd.gpu_pool.layout import Layout, LayoutKind
from radixd.gpu_pool.memory import PoolMemory
from radixd.gpu_pool.presets import load_geometry
from radixd.gpu_pool.quantise import ScaleMode, read_index, read_latent, write_index, write_latent
from tests.unit.gpu_pool.pools import MakePool
from tests.unit.gpu_pool.raw_reader import reader_for

KINDS: tuple[LayoutKind, ...] = ("page_first", "layer_first")
MODES: tuple[ScaleMode, ...] = ("pow2", "fp32")


def _f32(x: float) -> float:
    return float(struct.unpack("f", struct.pack("f", x))[0])


def _e4m3(byte: int) -> float:
    """One fp8 e4m3 value from its bits: sign, 4 exponent bits of bias 7, 3 mantissa bits, subnormals at exponent 0."""
    exponent, mantissa = byte >> 3 & 15, byte & 7
    magnitude = math.ldexp(mantissa, -9) if exponent == 0 else math.ldexp(8 + mantissa, exponent - 10)
    return -magnitude if byte & 0x80 else magnitude


def _tokens(n: int, width: int, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    scale = torch.logspace(-6, 6, n).unsqueeze(-1)
    return torch.randn(n, width, generator=generator) * scale


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("name", "width", "rope_width", "block"), [("glm-5.3", 512, 64, 128), ("tiny", 16, 6, 16)])
def test_latents_come_back_within_half_an_fp8_step_and_rope_exactly(
    make_pool: MakePool, name: str, width: int, rope_width: int, block: int, kind: LayoutKind, mode: ScaleMode
) -> None:
    memory = make_pool(name, kind, pages=4)
    slots = [64, 255, 130, 131, 190]
    nope, rope = _tokens(5, width), _tokens(5, rope_width, seed=2).bfloat16()
    write_latent(memory.views[0], 1, slots, nope, rope, mode)
    again = read_latent(memory.views[0], 1, slots)
    assert torch.equal(again.rope, rope)
    amax = nope.reshape(5, -1, block).abs().amax(-1, keepdim=True)
    scale = (amax / 448).clamp(min=1e-4) * (2 if mode == "pow2" else 1)
    # e4m3 keeps 4 significant bits: half a step is at most 1/16 of the value, or half the least subnormal.
    bound = torch.maximum(nope.reshape(5, -1, block).abs() / 16, scale * 2**-10)
    assert ((again.nope - nope).reshape(5, -1, block).abs() <= bound * 1.001).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_bytes_are_the_byte_maps(make_pool: MakePool, kind: LayoutKind) -> None:
    memory = make_pool("glm-5.3", kind, pages=2)
    views, reader = memory.views[0], reader_for("glm-5.3", kind, 3)
    nope, rope, keys = _tokens(2, 512), _tokens(2, 64, seed=2).bfloat16(), _tokens(2, 128, seed=3)
    before = views.buffer.numpy().tobytes()
    write_latent(views, 77, [64 + 17, 128 + 63], nope, rope)
    write_index(views, 74, [64 + 17, 128 + 63], keys)
    raw = views.buffer.numpy().tobytes()
    written = bytearray(before)
    for i, (page, t) in enumerate([(1, 17), (2, 63)]):
        ranges = reader.token(page, t)
        blocks = [(nope[i].tolist()[128 * b : 128 * (b + 1)], "latent", b) for b in range(4)]
        blocks.append((keys[i].tolist(), "index", 0))
        for values, component, b in blocks:
            layer = 77 if component == "latent" else 74
            amax = max(abs(v) for v in values)
            floor = max(amax / 448, 1e-4) if component == "latent" else max(amax, 1e-4) / 448
            start = ranges[component, layer, "scale"][0] + 4 * b
            (scale,) = struct.unpack("<f", raw[start : start + 4])
            assert scale == 2.0 ** math.ceil(math.log2(floor))
            first = ranges[component, layer, "nope" if component == "latent" else "key"][0] + 128 * b
            for value, byte in zip(values, raw[first : first + 128], strict=True):
                step = max(abs(value) / 8, scale * 2**-9)
                assert abs(_e4m3(byte) * scale - value) <= step / 2 * 1.001
        start, end = ranges["latent", 77, "rope"]
        assert torch.frombuffer(bytearray(raw[start:end]), dtype=torch.bfloat16).equal(rope[i])
        for key in [("latent", 77, "nope"), ("latent", 77, "scale"), ("latent", 77, "rope")]:
            written[slice(*ranges[key])] = raw[slice(*ranges[key])]
        for key in [("index", 74, "key"), ("index", 74, "scale")]:
            written[slice(*ranges[key])] = raw[slice(*ranges[key])]
    assert bytes(written) == raw, "a byte of another token, layer or region has changed"


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=16, max_size=16),
    mode=st.sampled_from(MODES),
)
def test_index_scales_follow_the_formula(make_pool: MakePool, values: list[float], mode: ScaleMode) -> None:
    memory = make_pool("tiny", pages=1)
    write_index(memory.views[0], 0, [70], torch.tensor([values]), mode)
    scale = memory.views[0].region("index", 0, "scale")[1, 6].item()
    least = _f32(max(_f32(max(abs(v) for v in values)), _f32(1e-4)) / 448)
    if mode == "fp32":
        assert scale == pytest.approx(least, rel=1e-6)
    else:
        mantissa, _ = math.frexp(scale)
        assert mantissa == 0.5, "not a power of two"
        assert scale / 2 < least <= scale
    assert read_index(memory.views[0], 0, [70]).isfinite().all()


@pytest.mark.parametrize("exponent", [-10, 0, 1, 9, 30])
def test_a_scale_that_is_a_power_of_two_already_stays_and_one_ulp_more_doubles(
    make_pool: MakePool, exponent: int
) -> None:
    views = make_pool("tiny", pages=1).views[0]
    exact = 448 * 2.0**exponent
    above = torch.nextafter(torch.tensor(exact), torch.tensor(torch.inf)).item()
    for amax, expected in [(exact, 2.0**exponent), (above, 2.0 ** (exponent + 1))]:
        write_latent(views, 0, [64], torch.full((1, 16), amax), torch.zeros(1, 6, dtype=torch.bfloat16))
        assert views.region("latent", 0, "scale")[1, 0].item() == expected


def test_zeros_come_back_as_zeros(make_pool: MakePool) -> None:
    views = make_pool("tiny", pages=1).views[0]
    write_latent(views, 0, [64], torch.zeros(1, 16), torch.zeros(1, 6, dtype=torch.bfloat16))
    write_index(views, 0, [64], torch.zeros(1, 16))
    assert views.region("latent", 0, "scale")[1, 0].item() == 2.0**-13, "2^ceil(log2(1e-4))"
    assert views.region("index", 0, "scale")[1, 0].item() == 2.0**-22, "2^ceil(log2(1e-4 / 448))"
    assert not read_latent(views, 0, [64]).nope.any()
    assert not read_index(views, 0, [64]).any()


def test_what_cannot_be_stored_is_refused_before_anything_is_written(make_pool: MakePool) -> None:
    views = make_pool("tiny", pages=2).views[0]
    before = views.buffer.clone()
    nope, rope, keys = torch.ones(1, 16), torch.ones(1, 6, dtype=torch.bfloat16), torch.ones(1, 16)
    refused: list[tuple[Callable[[], None], str]] = [
        (lambda: write_latent(views, 0, [64], torch.ones(1, 15), rope), r"nope must have shape \(1, 16\)"),
        (lambda: write_latent(views, 0, [64], nope, torch.ones(1, 6)), "rope must be torch.bfloat16"),
        (lambda: write_latent(views, 0, [64], nope, rope[:, :5]), "rope must have shape"),
        (lambda: write_latent(views, 0, [64], nope * torch.nan, rope), "nope holds NaN"),
        (lambda: write_index(views, 0, [64], keys * torch.inf), "keys holds NaN or infinity"),
        (lambda: write_index(views, 0, [64, 65], keys), "keys must have shape"),
        (lambda: write_index(views, 0, [192], keys), r"within \[0, 191\]"),
        (lambda: write_index(views, 0, [-1], keys), r"within \[0, 191\]"),
        (lambda: write_index(views, 1, [64], keys), "does not have the component"),
    ]
    for write, names in refused:
        with pytest.raises(ValueError, match=names):
            write()
    assert torch.equal(views.buffer, before)


def test_a_geometry_without_quantised_regions_is_refused() -> None:
    memory = PoolMemory.allocate(Layout(load_geometry("llama-8b"), "page_first", 1), "meta")
    with memory, pytest.raises(KeyError):
        read_index(memory.views[0], 0, [64])
