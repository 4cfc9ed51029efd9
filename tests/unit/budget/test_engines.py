"""The pool, SGLang and vLLM make the same of the same bytes."""

from hypothesis import given
from hypothesis import strategies as st

from radixd.gpu_pool.budget.cost import cost_of
from radixd.gpu_pool.budget.engines import as_sglang_counts, as_vllm_counts
from radixd.gpu_pool.layout import usable_pages
from radixd.gpu_pool.presets import load_geometry

GLM = load_geometry("glm-5.3")


def test_100_gb_of_glm53() -> None:
    cost = cost_of(GLM)
    sglang, vllm = as_sglang_counts(cost, 100 * 10**9), as_vllm_counts(cost, 100 * 10**9)
    assert (sglang.cell_size, sglang.max_total_num_tokens) == (53_940, 1_853_888)
    assert (vllm.page_size_bytes, vllm.num_blocks) == (3_452_160, 28_967)


@given(
    available=st.integers(10**8, 10**12),
    spread=st.sampled_from([(0, 1, 1), (1, 1, 1), (0, 2, 1), (0, 8, 1), (0, 1, 8), (1, 1, 8)]),
)
def test_both_views_agree_and_the_pool_keeps_one_page_of_them(available: int, spread: tuple[int, int, int]) -> None:
    mtp, kpool, dcp = spread
    cost = cost_of(GLM, mtp=mtp, kpool=kpool, dcp=dcp)
    blocks = as_vllm_counts(cost, available).num_blocks
    assert as_sglang_counts(cost, available).max_total_num_tokens == blocks * cost.page_slots
    if blocks > 1:
        assert usable_pages(available, cost.page_stride) == blocks - 1
