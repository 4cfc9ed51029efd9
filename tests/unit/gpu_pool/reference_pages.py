"""What a kernel reads from a GLM-5.3 pool's raw bytes, written from GLM53.md alone: whole pages, decoded.

It knows offsets as literals, bytes as struct and numpy give them, and shares nothing with the code under test.
"""

import numpy as np
import numpy.typing as npt

PAGE_TOKENS = 64
LAYERS = 78
FULL_LAYERS = (0, 1, 2, *range(6, 75, 4))
LATENT_PAGE, INDEX_PAGE = 41_984, 8_448
PAGE = LAYERS * LATENT_PAGE + len(FULL_LAYERS) * INDEX_PAGE

Floats = npt.NDArray[np.float32]


def _e4m3_values() -> Floats:
    """The 256 values of fp8 e4m3: sign, 4 bits of exponent with bias 7, 3 bits of mantissa; S.1111.111 is NaN."""
    bits = np.arange(256)
    exponent, mantissa = bits >> 3 & 15, bits & 7
    magnitude = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10.0))
    magnitude[bits & 127 == 127] = np.nan
    return np.where(bits & 128, -magnitude, magnitude).astype(np.float32)


E4M3 = _e4m3_values()


def latent_page(raw: bytes, kind: str, pages: int, page: int, layer: int, stride: int = PAGE) -> tuple[Floats, bytes]:
    """NoPE values, dequantised [64, 512], and the RoPE part's bf16 bytes, 64 × 128, of one page on one layer."""
    start = page * stride + layer * LATENT_PAGE
    if kind == "layer_first":
        start = (layer * pages + page) * LATENT_PAGE
    rows = [raw[start + 656 * t : start + 656 * (t + 1)] for t in range(PAGE_TOKENS)]
    quantised = np.stack([np.frombuffer(row, np.uint8, 512) for row in rows])
    scales = np.stack([np.frombuffer(row, "<f4", 4, offset=512) for row in rows])
    return E4M3[quantised] * scales.repeat(128, axis=1), b"".join(row[528:656] for row in rows)


def index_page(raw: bytes, kind: str, pages: int, page: int, layer: int, stride: int = PAGE) -> Floats:
    """Indexer keys, dequantised [64, 128], of one page on one full layer: all keys lie before all scales."""
    nth = FULL_LAYERS.index(layer)
    start = page * stride + LAYERS * LATENT_PAGE + nth * INDEX_PAGE
    if kind == "layer_first":
        start = LAYERS * pages * LATENT_PAGE + (nth * pages + page) * INDEX_PAGE
    keys = np.frombuffer(raw, np.uint8, 64 * 128, offset=start).reshape(64, 128)
    scales = np.frombuffer(raw, "<f4", 64, offset=start + 8_192)
    return E4M3[keys] * scales[:, None]
