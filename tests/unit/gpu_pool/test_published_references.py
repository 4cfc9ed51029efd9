"""Our pages' bytes against those of the engines' own pure-torch references, where bench/sglang_venv.sh put them."""

import ast
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from radixd.gpu_pool.layout import LayoutKind
from radixd.gpu_pool.quantise import write_index, write_latent
from tests.unit.gpu_pool.pools import MakePool

ROOT = Path(__file__).resolve().parents[3]
SGLANG = next(iter(ROOT.glob(".venv-sglang/lib/python3*/site-packages/sglang")), Path("missing"))
LATENT = SGLANG / "test/kernels/dsa_k_cache_reference.py"
INDEX = SGLANG / "srt/layers/attention/dsa/utils.py"

pytestmark = pytest.mark.skipif(not (LATENT.exists() and INDEX.exists()), reason="bench/sglang_venv.sh was not run")

LAYOUTS: tuple[LayoutKind, ...] = ("page_first", "layer_first")
PAGE = range(128, 192)


def _function(path: Path, name: str) -> Callable[..., torch.Tensor]:
    """One function of a module whose other imports need a GPU."""
    tree = ast.parse(path.read_text())
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    scope: dict[str, object] = {"torch": torch}
    exec(compile(tree, path, "exec"), scope)
    found = scope[name]
    assert callable(found)
    return found


def _values(width: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(width)
    return torch.randn(64, width, generator=generator) * torch.logspace(-1, 3, 64).unsqueeze(-1)


@pytest.mark.parametrize("kind", LAYOUTS)
def test_latent_rows_are_those_of_flashmlas_reference_as_sglang_keeps_it(make_pool: MakePool, kind: LayoutKind) -> None:
    quantise = _function(LATENT, "_quantize_k_cache_ref")
    views = make_pool("glm-5.3", kind, 3).views[0]
    nope, rope = _values(512), _values(64).bfloat16()
    write_latent(views, 5, PAGE, nope, rope, mode="fp32")
    page = views.buffers("latent")[5][2]
    # In float32 for the scales, which a bf16 input would round to bf16; in bf16 for the layout of the RoPE part.
    exact = quantise(nope.view(1, 64, 1, 512)).view(torch.uint8).view(64, 528)
    whole = quantise(torch.cat((nope.bfloat16(), rope), 1).view(1, 64, 1, 576)).view(torch.uint8).view(64, 656)
    assert torch.equal(page[:, :528], exact)
    assert torch.equal(page[:, 528:], whole[:, 528:])


@pytest.mark.parametrize("kind", LAYOUTS)
def test_index_pages_are_those_that_deepgemms_paged_logits_are_tested_with(
    make_pool: MakePool, kind: LayoutKind
) -> None:
    rounded, fused = _function(INDEX, "fp8_mqa_logits_ceil_to_ue8m0"), _function(INDEX, "fp8_mqa_logits_make_fused_kv")
    views = make_pool("glm-5.3", kind, 3).views[0]
    keys = _values(128)
    write_index(views, 6, PAGE, keys)
    scale = rounded(keys.abs().amax(-1, keepdim=True).clamp(1e-4) / 448.0)
    quantised = (keys / scale).to(torch.float8_e4m3fn).view(1, 64, 128)
    page = fused(quantised, scale.view(1, 64), 64, 128).view(torch.uint8).flatten()
    assert torch.equal(views.buffers("index")[6][2], page)
