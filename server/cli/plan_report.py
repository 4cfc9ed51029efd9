"""A plan for people."""

from radixd.gpu_pool.budget.admission import Admission, Verdict
from radixd.gpu_pool.budget.context import Context, Hit
from radixd.gpu_pool.budget.engines import as_sglang_counts, as_vllm_counts
from radixd.gpu_pool.budget.node import Node
from radixd.gpu_pool.budget.plan import REFERENCE_BYTES, Plan, PoolSize, Scratch
from radixd.server.byte_text import both_units
from radixd.server.cli.output import print_table


def print_plan(plan: Plan) -> None:
    """All that was asked for."""
    print(plan.model.title)
    _print_cost(plan)
    _print_contexts(plan)
    if plan.pool:
        _print_pool(plan, plan.pool)
    if plan.node:
        _print_node(plan.node)
    if plan.host_pages:
        cost = plan.model.cost
        tokens, nbytes = plan.host_pages * cost.page_tokens, plan.host_pages * cost.page_bytes
        print(f"\nhost tier: {plan.host_pages:,} pages, {tokens:,} tokens, {nbytes:,} bytes ({both_units(nbytes)})")
    if plan.scratch:
        _print_scratch(plan.scratch)
    if plan.hit:
        _print_hit(plan, plan.hit)
    if plan.admission:
        _print_admission(plan.admission)


def _print_cost(plan: Plan) -> None:
    cost = plan.model.cost
    rows = [(name, cost.layers[name], nbytes, cost.page_parts[name]) for name, nbytes in cost.parts.items()]
    print_table(("component", "layers", "bytes / slot", "bytes / page"), rows)
    padded = f", padded to {cost.page_stride:,}" if cost.page_stride != cost.page_bytes else ""
    print(f"a slot is {cost.cell:,} bytes")
    print(f"a page is {cost.page_slots} slots, {cost.page_tokens} tokens, {cost.page_bytes:,} bytes{padded}")
    print(f"a request's last page wastes {cost.tail_waste:,} bytes on average")
    if plan.pool is None:
        print(f"{both_units(REFERENCE_BYTES)} hold {plan.reference_tokens:,} tokens and page 0")
    print()


def _print_contexts(plan: Plan) -> None:
    parts = plan.model.cost.parts
    columns = ("context", "tokens", "pages", *parts, "bytes", "decimal = binary", "slot table", "page table")
    rows = [
        (
            *(_length(context.tokens), context.tokens, context.pages, *context.parts.values(), context.nbytes),
            *(both_units(context.nbytes), context.slot_table_bytes, context.page_table_bytes),
        )
        for context in plan.contexts
    ]
    print_table(columns, rows)
    if plan.batch > 1:
        for context in plan.contexts:
            pages, nbytes = plan.batch * context.pages, plan.batch * context.nbytes
            print(f"{plan.batch} × {_length(context.tokens)}: {pages:,} pages, {nbytes:,} bytes ({both_units(nbytes)})")
    if plan.model.indexer:
        longest = max(plan.contexts, key=lambda context: context.tokens)
        nbytes = longest.index_read_bytes
        each = f"each request of {_length(longest.tokens)}"
        print(f"a decode step reads {nbytes:,} bytes of index K ({both_units(nbytes)}) for {each}")


def _print_pool(plan: Plan, pool: PoolSize) -> None:
    print(f"\nthe pool on one device: {pool.origin}")
    print(f"{pool.pages:,} usable pages, {pool.tokens:,} tokens")
    print(f"{pool.nbytes:,} bytes, page 0 included ({both_units(pool.nbytes)})")
    for context in plan.contexts:
        at_once, verdict = pool.holds(context), _batch_verdict(plan, pool, context)
        print(f"  holds {at_once:,} request{'s' * (at_once != 1)} of {_length(context.tokens)} at once{verdict}")
    sglang, vllm = as_sglang_counts(pool.cost, pool.given_bytes), as_vllm_counts(pool.cost, pool.given_bytes)
    rows = [
        ("SGLang", "cell_size", sglang.cell_size, "max_total_num_tokens", sglang.max_total_num_tokens),
        ("vLLM", "page_size_bytes", vllm.page_size_bytes, "num_blocks", vllm.num_blocks),
    ]
    print()
    print_table((f"{pool.given_bytes:,} bytes as", "", "unit", "", "capacity"), rows)
    print("SGLang allocates its padding page beyond these bytes; vLLM's null block is one of its blocks")
    if plan.model.dcp > 1:
        print("the index is replicated, as SGLang does under DCP; vLLM 0.32 shards it and fits more")


def _print_node(node: Node) -> None:
    shares = (("tensor parallel", node.tensor_parallel), ("data-parallel attention", node.data_parallel_attention))
    print()
    print_table(
        (f"{node.gpus} GPUs", "pools", "different tokens", "copies of each"),
        [(name, share.pools, share.tokens, share.copies) for name, share in shares],
    )


def _batch_verdict(plan: Plan, pool: PoolSize, context: Context) -> str:
    if plan.batch == 1:
        return ""
    missing = plan.batch * context.pages - pool.pages
    if missing <= 0:
        return f"; {plan.batch} fit"
    return f"; {plan.batch} lack {missing:,} pages ({both_units(missing * pool.cost.page_stride)})"


def _print_scratch(scratch: Scratch) -> None:
    print(f"\noutside the pool, per process: leave {scratch.nbytes:,} bytes free ({both_units(scratch.nbytes)})")
    if scratch.budget is None:
        print("no GPU is given, so nothing bounds the logits: all rows at once")
    else:
        print(f"SGLang gives {scratch.budget:,} bytes to the logits at once")
    prefill, decode = scratch.prefill, scratch.decode
    rows: list[tuple[object, ...]] = [("top-k indices", prefill.rows, "", "", scratch.topk_bytes)]
    rows += [
        (name, work.rows, f"{work.columns:,}", f"{work.chunks:,}", work.nbytes)
        for name, work in (("prefill logits", prefill), ("decode logits", decode))
    ]
    print_table(("buffer", "rows", "columns", "chunks", "bytes"), rows)


def _print_hit(plan: Plan, hit: Hit) -> None:
    print(f"\na hit of {hit.asked:,} tokens on {_length(hit.context.tokens)}")
    print(f"  found: {hit.tokens:,} tokens in {hit.pages:,} pages")
    for name, nbytes in hit.parts_saved.items():
        print(f"  {name} not written: {nbytes:,} bytes ({nbytes / 10**9:.3f} GB)")
    print(f"  to compute: {hit.suffix:,} tokens, {hit.suffix_pages:,} pages to allocate")
    if plan.model.indexer:
        flop = plan.model.indexer.flop_per_pair
        pairs = (("P²/2, saved", hit.pairs_saved), ("P·S, left", hit.cross_pairs), ("S²/2, left", hit.own_pairs))
        rows = [(name, count, round(count * flop / 10**12, 1)) for name, count in pairs]
        print_table(("indexer", "pairs", "TFLOP"), rows)


def _print_admission(admission: Admission) -> None:
    print(f"\nin this order into {admission.pages:,} pages, each reserving its whole length:")
    rows = [(_length(v.tokens), v.tokens, v.pages, v.outcome, _advice(admission, v)) for v in admission.verdicts]
    print_table(("request", "tokens", "pages", "outcome", "what to change"), rows)
    print(f"{admission.free:,} pages stay free")
    if any(verdict.outcome != "admitted" for verdict in admission.verdicts):
        print(f"a pool of {admission.tokens_for_all:,} tokens holds all of them at once")


def _advice(admission: Admission, verdict: Verdict) -> str:
    if verdict.outcome == "admitted":
        return ""
    if verdict.outcome == "waits":
        return f"starts when {verdict.missing:,} more pages are free: end others, or send it before them"
    most, least = admission.pages * admission.page_tokens, verdict.pages * admission.page_tokens
    return f"at most {most:,} tokens a request, or a pool of {least:,} tokens"


def _length(tokens: int) -> str:
    """Tokens in the largest unit that says them exactly: 1M, 8K, 1000."""
    for unit, size in (("M", 2**20), ("K", 2**10)):
        if tokens % size == 0:
            return f"{tokens // size}{unit}"
    return f"{tokens}"
