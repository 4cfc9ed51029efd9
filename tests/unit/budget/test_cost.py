"""What a slot, a page and a context cost: the figures of GLM-5.3, and what changes them."""

import pytest

from radixd.gpu_pool.budget import BudgetError
from radixd.gpu_pool.budget.context import Context, Hit
from radixd.gpu_pool.budget.cost import Cost, cost_of, with_index_layers, with_page_size
from radixd.gpu_pool.budget.node import Node, index_buffer_slots
from radixd.gpu_pool.budget.plan import Model
from radixd.gpu_pool.layout import page_stride
from radixd.gpu_pool.presets import PRESETS, load_geometry

GLM = load_geometry("glm-5.3")
COST = cost_of(GLM)
MILLION = 2**20
GB = 10**9


def test_a_slot_of_glm53() -> None:
    assert COST.parts == {"latent": 51_168, "index": 2_772}
    assert COST.layers == {"latent": 78, "index": 21}
    assert COST.cell == 53_940


def test_a_page_of_glm53() -> None:
    assert COST.page_bytes == COST.page_stride == 3_452_160
    assert cost_of(GLM, stride_multiple=656).page_stride == 3_452_528
    assert (COST.page_slots, COST.page_tokens) == (64, 64)


def test_an_mtp_layer_adds_both_caches_as_the_preset_with_one_has_them() -> None:
    with_mtp = cost_of(GLM, mtp=1)
    assert with_mtp.cell == 53_940 + 788 == 54_728
    assert with_mtp.page_bytes == 3_502_592
    assert with_mtp == cost_of(load_geometry("glm-5.3-mtp"))


def test_tiny_is_84_bytes_a_token() -> None:
    tiny = cost_of(load_geometry("tiny"))
    assert (tiny.cell, tiny.page_bytes) == (84, 5_376)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("multiple", [1, 656])
def test_a_page_costs_what_the_pools_layout_says(name: str, multiple: int) -> None:
    geometry = load_geometry(name)
    assert cost_of(geometry, stride_multiple=multiple).page_stride == page_stride(geometry, multiple)


@pytest.mark.parametrize(
    ("tokens", "pages", "latent", "index", "total"),
    [
        (8_192, 128, 419_168_256, 22_708_224, 441_876_480),
        (131_072, 2_048, 6_706_692_096, 363_331_584, 7_070_023_680),
        (524_288, 8_192, 26_826_768_384, 1_453_326_336, 28_280_094_720),
        (1_048_576, 16_384, 53_653_536_768, 2_906_652_672, 56_560_189_440),
    ],
)
def test_contexts(tokens: int, pages: int, latent: int, index: int, total: int) -> None:
    context = Context(COST, tokens)
    assert context.pages == pages
    assert context.parts == {"latent": latent, "index": index}
    assert context.nbytes == total


def test_a_context_takes_whole_pages_with_their_padding() -> None:
    assert Context(COST, 65).nbytes == 2 * 3_452_160
    assert Context(cost_of(GLM, stride_multiple=656), 65).nbytes == 2 * 3_452_528


def test_the_index_is_5_4_percent_of_the_latent_and_5_1_of_the_whole() -> None:
    assert round(100 * 2_772 / COST.parts["latent"], 1) == 5.4
    assert round(100 * COST.parts["index"] / COST.cell, 1) == 5.1


def test_planned_on_the_latent_alone_a_1m_request_is_842_pages_short() -> None:
    index = Context(COST, MILLION).parts["index"]
    assert round(index / GB, 1) == 2.9
    assert -(-index // COST.page_stride) == 842


def test_tables_and_the_tail() -> None:
    context = Context(COST, MILLION)
    assert context.slot_table_bytes == 4 * 2**20
    assert context.page_table_bytes == 64 * 2**10
    assert COST.tail_waste == 32 * 53_940 == 1_726_080


def test_scoring_a_token_reads_the_whole_index() -> None:
    assert Context(COST, MILLION).index_read_bytes == MILLION * 132 * 21
    assert Context(cost_of(GLM, dcp=8), MILLION).index_read_bytes == MILLION * 132 * 21
    assert Context(cost_of(load_geometry("llama-8b")), MILLION).index_read_bytes == 0


def test_39_index_layers_for_21_cost_4_2_percent_of_the_capacity() -> None:
    more = cost_of(with_index_layers(GLM, 39))
    assert more.cell == 56_316
    assert round(100 * (COST.cell / more.cell - 1), 1) == -4.2


def test_dcp_shards_the_latent_and_replicates_index_and_mtp() -> None:
    cost = cost_of(GLM, dcp=8)
    assert cost.parts == {"latent": 51_168, "index": 8 * 2_772}
    assert (cost.page_slots, cost.page_tokens) == (64, 512)
    assert Context(cost, MILLION).parts == {"latent": 53_653_536_768 // 8, "index": 2_906_652_672}
    assert cost_of(GLM, mtp=1, dcp=8).cell == 51_168 + 8 * (2_772 + 788)


@pytest.mark.parametrize(("kpool", "index"), [(1, 132), (2, 66), (4, 33), (8, 17), (64, 3)])
def test_kpool_divides_the_index_rounded_up_and_widens_the_page(kpool: int, index: int) -> None:
    cost = cost_of(GLM, kpool=kpool)
    assert cost.parts == {"latent": 51_168, "index": 21 * index}
    assert cost.page_tokens == cost.page_slots == 64 * kpool


def test_a_hit_of_100000_tokens_on_a_1m_prompt() -> None:
    hit = Hit(Context(COST, MILLION), 100_000)
    assert (hit.pages, hit.tokens) == (1_562, 99_968)
    assert {name: round(nbytes / GB, 3) for name, nbytes in hit.parts_saved.items()} == {
        "latent": 5.115,
        "index": 0.277,
    }
    assert (hit.suffix, hit.suffix_pages) == (948_608, 14_822)


def test_a_hit_saves_its_own_pairs_and_leaves_the_cross_pairs() -> None:
    hit = Hit(Context(COST, 1_000), 640)
    assert (hit.pairs_saved, hit.cross_pairs, hit.own_pairs) == (640**2 // 2, 640 * 360, 360**2 // 2)
    everything = Hit(Context(COST, 1_000), 0)
    assert hit.pairs_saved + hit.cross_pairs + hit.own_pairs == everything.own_pairs


def test_a_pair_costs_8192_flop_a_full_layer() -> None:
    indexer = Model(GLM, COST, heads=32).indexer
    assert indexer is not None
    assert indexer.flop_per_pair == 8_192 * 21
    llama = load_geometry("llama-8b")
    assert Model(llama, cost_of(llama), heads=32).indexer is None


def test_a_node_of_eight_gpus() -> None:
    same, different = Node(8, 1_000).tensor_parallel, Node(8, 1_000).data_parallel_attention
    assert (same.pools, same.tokens, same.copies) == (1, 1_000, 8)
    assert (different.pools, different.tokens, different.copies) == (8, 8_000, 1)
    assert Node(8, 1_000, dcp=4).tensor_parallel.copies == 2
    assert Node(8, 1_000, dcp=4).data_parallel_attention.tokens == 2_000


def test_dcps_index_buffer_holds_all_ranks_tokens() -> None:
    assert index_buffer_slots(6_400, 64, dcp=8) == (6_400 + 64) * 8 - 64
    assert index_buffer_slots(6_400, 64, dcp=8, dcp_replicated=True) == 6_400
    assert index_buffer_slots(6_400, 64, dcp=1) == 6_400


def of_glm(**how: int) -> Cost:
    return cost_of(GLM, **how)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"mtp": -1}, "mtp -1 is outside [0, 4096]"),
        ({"kpool": 3}, "kpool 3 is no power of two within [1, 64]"),
        ({"kpool": 0}, "kpool 0 is no power of two"),
        ({"kpool": 128}, "kpool 128 is no power of two within [1, 64]"),
        ({"kpool": 2, "dcp": 2}, "kpool 2 with dcp 2"),
        ({"dcp": 0}, "dcp 0 is outside [1, 64]"),
        ({"stride_multiple": 0}, "stride-multiple 0 is outside"),
    ],
)
def test_what_no_engine_runs_is_refused(how: dict[str, int], expected: str) -> None:
    with pytest.raises(BudgetError) as raised:
        of_glm(**how)
    assert str(raised.value).startswith(expected)


def test_an_indexer_takes_pages_of_64_alone_and_other_models_any() -> None:
    with pytest.raises(BudgetError, match="page-size 48: the DSA indexer's kernels accept pages of 64 alone"):
        cost_of(with_page_size(GLM, 48))
    assert cost_of(with_page_size(load_geometry("llama-8b"), 48)).page_tokens == 48
    with pytest.raises(BudgetError, match=r"page-size 0 is outside \[1, 4096\]"):
        with_page_size(GLM, 0)


def test_a_model_without_an_indexer_has_none_to_change() -> None:
    llama = load_geometry("llama-8b")
    with pytest.raises(BudgetError, match="indexer: llama-8b has no indexer"):
        with_index_layers(llama, 2)
    with pytest.raises(BudgetError, match="kpool: llama-8b has no indexer"):
        cost_of(llama, kpool=2)
    with pytest.raises(BudgetError, match=r"indexer 79 is outside \[1, 78\]"):
        with_index_layers(GLM, 79)


@pytest.mark.parametrize("asked", [-1, 1_000])
def test_a_hit_leaves_a_token_to_compute(asked: int) -> None:
    with pytest.raises(BudgetError, match="at least one is left to compute"):
        Hit(Context(COST, 1_000), asked)


def test_a_context_has_a_token() -> None:
    with pytest.raises(BudgetError, match="context 0 is less than one token"):
        Context(COST, 0)


@pytest.mark.parametrize("gpus", [0, 6])
def test_gpus_are_divided_into_whole_groups(gpus: int) -> None:
    with pytest.raises(BudgetError, match=f"gpus {gpus} is no positive multiple of dcp 4"):
        Node(gpus, 1_000, dcp=4)
