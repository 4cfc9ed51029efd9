"""The tables of docs/budget.md, computed. `python scripts/budget_tables.py` writes them into the document.

In the document a table stands between `<!-- table: NAME -->` and `<!-- end -->`.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from radixd.gpu_pool.budget.admission import admit
from radixd.gpu_pool.budget.capacity import pages_to_hold, shortfall
from radixd.gpu_pool.budget.context import Context, Hit
from radixd.gpu_pool.budget.cost import Cost, cost_of, with_index_layers
from radixd.gpu_pool.budget.engines import as_sglang_counts, as_vllm_counts
from radixd.gpu_pool.budget.node import Node, index_buffer_slots
from radixd.gpu_pool.budget.plan import Model
from radixd.gpu_pool.budget.scratch import LogitsWorkspace, logits_budget, logits_workspace, topk_indices_bytes
from radixd.gpu_pool.layout import usable_pages, whole_pages
from radixd.gpu_pool.presets import load_geometry

DOCUMENT = Path(__file__).parent.parent / "docs" / "budget.md"
TABLE = re.compile(r"<!-- table: (\w+) -->\n.*?<!-- end -->", re.DOTALL)

GLM = load_geometry("glm-5.3")
COST = cost_of(GLM)
MILLION = 2**20
GPU = 141 * 10**9
GIVEN = 100 * 10**9

Rows = Sequence[Sequence[object]]


def with_tables(text: str) -> str:
    """The document with every table computed anew. KeyError for a table that nobody computes."""
    return TABLE.sub(
        lambda found: f"<!-- table: {found[1]} -->\n\n{_markdown(TABLES[found[1]]())}\n\n<!-- end -->", text
    )


def token() -> Rows:
    """Bytes of one slot."""
    rows: list[Sequence[object]] = [("component", "bytes a layer", "layers", "bytes a token")]
    for component in GLM.components:
        name = component.name
        rows.append((name, component.bytes_per_token, COST.layers[name], COST.parts[name]))
    return [*rows, ("both: the cell", "", sum(COST.layers.values()), COST.cell)]


def page() -> Rows:
    """Bytes of one page, and what changes them."""
    variants: tuple[tuple[str, Cost], ...] = (
        ("GLM-5.3", COST),
        ("with one MTP layer", cost_of(GLM, mtp=1)),
        ("with 39 index layers", cost_of(with_index_layers(GLM, 39))),
        ("stride a multiple of 656 (SM100)", cost_of(GLM, stride_multiple=656)),
        ("index_kpool 2", cost_of(GLM, kpool=2)),
        ("index_kpool 8", cost_of(GLM, kpool=8)),
        ("DCP 8, one rank", cost_of(GLM, dcp=8)),
        ("DCP 8 with one MTP layer, one rank", cost_of(GLM, mtp=1, dcp=8)),
    )
    rows: list[Sequence[object]] = [
        ("", "latent a slot", "index a slot", "cell", "slots a page", "tokens a page", "page", "stride")
    ]
    for name, cost in variants:
        sizes = (cost.page_slots, cost.page_tokens, cost.page_bytes, cost.page_stride)
        rows.append((name, *cost.parts.values(), cost.cell, *sizes))
    return rows


def contexts() -> Rows:
    """Bytes of a request."""
    rows = []
    for name, tokens in (("8K", 2**13), ("128K", 2**17), ("512K", 2**19), ("1M", MILLION)):
        context = Context(COST, tokens)
        units = (f"{context.nbytes / 10**9:.2f}", f"{context.nbytes / 2**30:.2f}")
        rows.append((name, tokens, context.pages, *context.parts.values(), context.nbytes, *units))
    return [("context", "tokens", "pages", "latent", "index", "bytes", "GB", "GiB"), *rows]


def capacity() -> Rows:
    """What 100 GB hold, and who says so."""
    sglang, vllm = as_sglang_counts(COST, GIVEN), as_vllm_counts(COST, GIVEN)
    pages = usable_pages(GIVEN, COST.page_stride)
    more = usable_pages(GIVEN, cost_of(with_index_layers(GLM, 39)).page_stride)
    return [
        ("figure", "value"),
        ("SGLang's `cell_size`", sglang.cell_size),
        ("SGLang's `max_total_num_tokens`", sglang.max_total_num_tokens),
        ("vLLM's bytes a block", vllm.page_size_bytes),
        ("vLLM's `num_blocks`", vllm.num_blocks),
        ("vLLM's blocks × 64", vllm.num_blocks * 64),
        ("radixd's usable pages", pages),
        ("radixd's usable tokens", pages * 64),
        ("with 39 index layers", more * 64),
        ("change by 18 more", f"−{100 - 100 * more / pages:.1f} %"),
    ]


def fits() -> Rows:
    """1M requests in two pools."""
    rows: list[Sequence[object]] = [("pool of tokens", "usable tokens", "1M request", "left over or missing")]
    for tokens in (1_000_000, 1_100_000):
        pages = whole_pages(tokens, COST.page_tokens)
        missing = shortfall(MILLION, pages, COST.page_tokens, COST.page_stride)
        rest = f"{pages * 64 - MILLION:,} tokens left" if missing is None else str(missing)
        rows.append((tokens, pages * 64, admit((MILLION,), pages, 64).verdicts[0].outcome, rest))
    index = Context(COST, MILLION).parts["index"]
    short = f"{index / 10**9:.1f} GB, {pages_to_hold(index, COST.page_stride):,} pages missing"
    return [*rows, ("1M, by the latent alone", "", "", short)]


def tables() -> Rows:
    """Beside the KV of a 1M request."""
    context = Context(COST, MILLION)
    return [
        ("what", "bytes"),
        ("page table with one int32 a slot (SGLang's `req_to_token` row)", context.slot_table_bytes),
        ("page table with one int32 a page (vLLM's block table row)", context.page_table_bytes),
        ("index K that one decode step reads", context.index_read_bytes),
        ("tail waste of a request, on average (32 tokens)", COST.tail_waste),
        ("top-k indices of 2,048 batched tokens", topk_indices_bytes(2_048)),
        ("top-k indices of 8,192 batched tokens", topk_indices_bytes(8_192)),
    ]


def logits() -> Rows:
    """The matrix of logits under budgets."""
    rows: list[Sequence[object]] = [
        ("rows × columns", "budget", "bytes at once", "rows a chunk", "chunks", "peak bytes")
    ]
    full = logits_budget(GPU, 0.9)
    works: tuple[tuple[LogitsWorkspace, str], ...] = (
        (logits_workspace(1, MILLION), "none"),
        (logits_workspace(32_768, MILLION), "none"),
        (logits_workspace(32_768, MILLION, full), f"{full:,}"),
        (logits_workspace(8_192, MILLION, full), f"{full:,}"),
        (logits_workspace(32 * (3 + 1), MILLION, full), f"{full:,}"),
    )
    for work, budget in works:
        size = f"{work.rows:,} × {work.columns:,}"
        rows.append((size, budget, work.whole_nbytes, work.chunk_rows, work.chunks, work.nbytes))
    return rows


def hit() -> Rows:
    """A cached prefix of 100,000 tokens of a 1M request."""
    found = Hit(Context(COST, MILLION), 100_000)
    indexer = Model(GLM, COST, heads=32).indexer
    assert indexer is not None
    return [
        ("figure", "value"),
        ("pages found", found.pages),
        ("P: tokens found", found.tokens),
        ("latent not written, bytes", found.parts_saved["latent"]),
        ("index not written, bytes", found.parts_saved["index"]),
        ("S: tokens to compute", found.suffix),
        ("pages to allocate", found.suffix_pages),
        ("P²/2: pairs saved", found.pairs_saved),
        ("P·S: pairs left", found.cross_pairs),
        ("S²/2: pairs left", found.own_pairs),
        ("FLOP a pair and full layer", indexer.flop_per_pair // indexer.layers),
        ("FLOP a pair", indexer.flop_per_pair),
    ]


def node() -> Rows:
    """8 GPUs with 100 GB for the pool on each."""
    rows: list[Sequence[object]] = [("", "pools", "different tokens", "copies of a latent row", "index slots a rank")]
    for dcp in (1, 8):
        cost = cost_of(GLM, dcp=dcp)
        pages = usable_pages(GIVEN, cost.page_stride)
        shared = Node(8, pages * cost.page_tokens, dcp)
        slots = index_buffer_slots(pages * cost.page_slots, cost.page_slots, dcp)
        for name, share in (
            ("tensor parallel", shared.tensor_parallel),
            ("data-parallel attention", shared.data_parallel_attention),
        ):
            rows.append((f"{name}, DCP {dcp}", share.pools, share.tokens, share.copies, slots))
    return rows


TABLES: dict[str, Callable[[], Rows]] = {
    build.__name__: build for build in (token, page, contexts, capacity, fits, tables, logits, hit, node)
}


def _markdown(rows: Rows) -> str:
    lines = [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


if __name__ == "__main__":
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
