"""The quantised reference store: writes and reads latents and index keys exactly as the engines' kernels lay them out.

For checking bytes, not for speed. A block of values shares one fp32 scale; dequantised = fp8 value x scale. With
`pow2` (the default) the scale is rounded up to a power of two, which survives SM100's truncation to e8m0:
FlashMLA's reference and vLLM's fused store. With `fp32` it is left as it is, as SGLang stores it.
"""

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from radixd.gpu_pool.views import PoolViews

ScaleMode = Literal["pow2", "fp32"]

FP8_MAX = 448.0
"""The largest finite e4m3 value."""

TINY = 1e-4
"""Keeps the scale of an all-zero block from being zero."""


class Latent(NamedTuple):
    """Dequantised MLA latents of n tokens: `nope` float32 [n, kv_lora_rank], `rope` bf16 [n, rope dims]."""

    nope: torch.Tensor
    rope: torch.Tensor


def write_latent(
    views: PoolViews,
    layer: int,
    slots: npt.ArrayLike,
    nope: torch.Tensor,
    rope: torch.Tensor,
    mode: ScaleMode = "pow2",
) -> None:
    """Store MLA latents: scale = 2^ceil(log2(max(amax / 448, 1e-4))) for each block of 128 values.

    Args:
        views: a pool whose component `latent` has regions nope (fp8), scale (fp32) and rope (bf16).
        layer: a layer of that component.
        slots: int [n], distinct.
        nope: float [n, kv_lora_rank], finite.
        rope: bf16 [n, rope dims], stored as it is.

    Raises ValueError, before anything is written, if a shape or dtype differs, a value is not finite or a slot is
    outside the pool.
    """
    stored = [views.region("latent", layer, name) for name in ("nope", "scale", "rope")]
    index = _index(views, slots, stored[0])
    _expect("nope", nope, stored[0], index)
    _expect("rope", rope, stored[2], index)
    if rope.dtype != stored[2].dtype:
        raise ValueError(f"rope must be {stored[2].dtype}, got {rope.dtype}")
    scale = _rounded((_block_amax("nope", nope, stored[1]) / FP8_MAX).clamp(min=TINY), mode)
    _store(stored[0], index, _quantise(nope, scale))
    _store(stored[1], index, scale)
    _store(stored[2], index, rope)


def read_latent(views: PoolViews, layer: int, slots: npt.ArrayLike) -> Latent:
    """The latents of `slots` (int [n]), dequantised. Raises ValueError for a slot outside the pool."""
    nope, scale, rope = (views.region("latent", layer, name) for name in ("nope", "scale", "rope"))
    index = _index(views, slots, nope)
    return Latent(_dequantise(_load(nope, index), _load(scale, index)), _load(rope, index))


def write_index(
    views: PoolViews, layer: int, slots: npt.ArrayLike, keys: torch.Tensor, mode: ScaleMode = "pow2"
) -> None:
    """Store indexer keys: scale = 2^ceil(log2(max(amax, 1e-4) / 448)) for each block of 128 values.

    Args:
        views: a pool whose component `index` has regions key (fp8) and scale (fp32).
        layer: a layer of that component: one that computes its own top-k.
        slots: int [n], distinct.
        keys: float [n, index head dim], finite.

    Raises ValueError as `write_latent` does.
    """
    stored = [views.region("index", layer, name) for name in ("key", "scale")]
    index = _index(views, slots, stored[0])
    _expect("keys", keys, stored[0], index)
    scale = _rounded(_block_amax("keys", keys, stored[1]).clamp(min=TINY) / FP8_MAX, mode)
    _store(stored[0], index, _quantise(keys, scale))
    _store(stored[1], index, scale)


def read_index(views: PoolViews, layer: int, slots: npt.ArrayLike) -> torch.Tensor:
    """The indexer keys of `slots` (int [n]), dequantised: float32 [n, index head dim]. Raises ValueError."""
    key, scale = (views.region("index", layer, name) for name in ("key", "scale"))
    index = _index(views, slots, key)
    return _dequantise(_load(key, index), _load(scale, index))


Index = tuple[torch.Tensor, torch.Tensor]
"""(page, offset) of each slot, int64 [n]."""


def _index(views: PoolViews, slots: npt.ArrayLike, stored: torch.Tensor) -> Index:
    """Raises ValueError for slots outside the pool, and for a layer or a dtype that holds nothing quantised."""
    if stored.shape[0] == 0:
        raise ValueError("this layer does not have the component: see Geometry.component(...).layers")
    if stored.dtype != torch.float8_e4m3fn:
        raise ValueError(f"this geometry stores {stored.dtype}, not quantised fp8")
    page_size, end = views.layout.geometry.page_size, views.layout.num_slots
    given = np.asarray(slots, dtype=np.int64)
    if given.ndim != 1 or ((given < 0) | (given >= end)).any():
        raise ValueError(f"slots must be a flat list within [0, {end - 1}]")
    return torch.from_numpy(given // page_size), torch.from_numpy(given % page_size)


def _expect(name: str, values: torch.Tensor, stored: torch.Tensor, index: Index) -> None:
    shape = (index[0].numel(), stored.shape[-1])
    if tuple(values.shape) != shape:
        raise ValueError(f"{name} must have shape {shape}, got {tuple(values.shape)}")


def _blocks(values: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """float32 [n, blocks, values of a block]: `scale`, [..., blocks], says how many blocks there are."""
    return values.float().reshape(values.shape[0], scale.shape[-1], values.shape[1] // scale.shape[-1])


def _block_amax(name: str, values: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """The largest magnitude of each block, float32 [n, blocks]."""
    amax = _blocks(values, scale).abs().amax(-1)
    if not amax.isfinite().all():
        raise ValueError(f"{name} holds NaN or infinity, which fp8 e4m3 cannot store")
    return amax


def _rounded(scale: torch.Tensor, mode: ScaleMode) -> torch.Tensor:
    if mode == "fp32":
        return scale
    # 2^ceil(log2(scale)), exactly: a float32 log2 may round a value just above a power of two down to it.
    mantissa, exponent = torch.frexp(scale)
    return torch.ldexp(torch.ones_like(scale), exponent - (mantissa == 0.5).int())


def _quantise(values: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """fp8 [n, width]. No scale is below amax / 448 by more than a rounding, so nothing overflows to NaN."""
    return (_blocks(values, scale) / scale.unsqueeze(-1)).flatten(1).to(torch.float8_e4m3fn)


def _dequantise(quantised: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return (_blocks(quantised, scale) * scale.unsqueeze(-1)).flatten(1)


def _store(region: torch.Tensor, index: Index, values: torch.Tensor) -> None:
    """Scatter; fp8 as its bytes, for which torch can index."""
    if region.dtype == torch.float8_e4m3fn:
        region, values = region.view(torch.uint8), values.view(torch.uint8)
    region[index] = values


def _load(region: torch.Tensor, index: Index) -> torch.Tensor:
    """Gather; fp8 as its bytes."""
    stored = region.view(torch.uint8) if region.dtype == torch.float8_e4m3fn else region
    return stored[index].view(region.dtype)
