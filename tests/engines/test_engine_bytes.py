"""SGLang's and vLLM's own code makes the same of GLM-5.3's geometry and of the same bytes."""

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from radixd.gpu_pool.budget.cost import cost_of, with_index_layers
from radixd.gpu_pool.budget.engines import as_sglang_counts, as_vllm_counts
from radixd.gpu_pool.budget.node import index_buffer_slots
from radixd.gpu_pool.budget.scratch import logits_budget, logits_row_bytes, logits_workspace
from radixd.gpu_pool.presets import load_geometry
from tests.unit.gpu_pool.test_presets import FULL_LAYERS, GLM53_CONFIG

pytestmark = pytest.mark.engines

ROOT = Path(__file__).parents[2]
GLM = load_geometry("glm-5.3")
AVAILABLE = 100 * 10**9
TOTAL, FRACTION = 141 * 10**9, 0.9
ROWS, COLUMNS = 8_192, 2**20
PROBE_PAGES = 3
"""Of SGLang's pool that is really allocated, and one more for padding."""


def ask(engine: str, question: dict[str, object]) -> dict[str, Any]:
    """An engine's answer, from its own environment."""
    python = ROOT / f".venv-{engine}" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{python} is not there: bench/{engine}_venv.sh makes it")
    command = (str(python), "-m", f"bench.engine_bytes.{engine}_child")
    done = subprocess.run(command, input=json.dumps(question), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@cache
def sglang(draft_layers: int = 0, dcp: int = 1, kpool: int = 1) -> dict[str, Any]:
    config = {**GLM53_CONFIG, "index_kpool": kpool}
    logits = (ROWS, COLUMNS, TOTAL, FRACTION)
    return ask(
        "sglang",
        {"config": config, "available": AVAILABLE, "dcp": dcp, "draft_layers": draft_layers, "logits": logits},
    )


@cache
def vllm(index_layers: tuple[int, ...] = FULL_LAYERS) -> dict[str, Any]:
    return ask("vllm", {"layers": 78, "index_layers": index_layers, "available": AVAILABLE})


def test_these_are_the_versions_that_the_figures_name() -> None:
    assert sglang()["version"] == "0.5.23"
    assert vllm()["version"] == "0.32.0"


def test_sglangs_bytes_a_token() -> None:
    cost = cost_of(GLM)
    assert sglang()["latent_row_bytes"] == 656
    assert sglang()["index_bytes"] == cost.parts["index"] == 2_772
    assert sglang()["index_layers"] == list(GLM.component("index").layers)


@pytest.mark.parametrize(("mtp", "dcp", "kpool"), [(0, 1, 1), (1, 1, 1), (0, 8, 1), (1, 8, 1), (0, 1, 2), (0, 1, 8)])
def test_sglangs_cell_and_capacity(mtp: int, dcp: int, kpool: int) -> None:
    theirs, ours = sglang(mtp, dcp, kpool), as_sglang_counts(cost_of(GLM, mtp, kpool, dcp), AVAILABLE)
    assert (theirs["cell_size"], theirs["max_total_num_tokens"]) == (ours.cell_size, ours.max_total_num_tokens)


def test_sglang_really_allocates_these_bytes_and_a_padding_page() -> None:
    page = cost_of(GLM).page_parts
    assert sglang()["latent_buffer_bytes"] == (PROBE_PAGES + 1) * page["latent"]
    assert sglang()["index_buffer_bytes"] == (PROBE_PAGES + 1) * page["index"]


@pytest.mark.parametrize("dcp", [1, 8])
def test_sglangs_index_buffer_has_all_ranks_slots(dcp: int) -> None:
    assert sglang(dcp=dcp)["index_slots"] == index_buffer_slots(PROBE_PAGES * 64, 64, dcp)


def test_sglangs_logits_budget_alignment_skip_and_chunks() -> None:
    theirs, budget = sglang(), logits_budget(TOTAL, FRACTION)
    assert theirs["logits_budget"] == budget
    assert theirs["logits_row_bytes"] == logits_row_bytes(COLUMNS)
    assert theirs["logits_chunk_rows"] == logits_workspace(ROWS, COLUMNS, budget).chunk_rows
    assert theirs["logits_checked"] == [logits_workspace(n, 1, budget=1).chunks > 1 for n in (7_999_999, 8_000_000)]


@pytest.mark.parametrize("count", [21, 39])
def test_vllms_pages_blocks_and_capacity(count: int) -> None:
    theirs = vllm(FULL_LAYERS if count == 21 else tuple(range(count)))
    cost = cost_of(with_index_layers(GLM, count))
    ours = as_vllm_counts(cost, AVAILABLE)
    assert theirs["latent_page_size_bytes"] == cost.page_parts["latent"] // 78 == 41_984
    assert theirs["index_page_size_bytes"] == cost.page_parts["index"] // count == 8_448
    assert (theirs["block_bytes"], theirs["num_blocks"]) == (ours.page_size_bytes, ours.num_blocks)


def test_both_engines_agree() -> None:
    assert vllm()["block_bytes"] == 3_452_160
    assert sglang()["max_total_num_tokens"] == 64 * vllm()["num_blocks"]
