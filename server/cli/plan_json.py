"""A plan as plain data: whole numbers, one word for one thing."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict

from radixd.gpu_pool.budget.context import Context, Hit
from radixd.gpu_pool.budget.cost import Cost
from radixd.gpu_pool.budget.engines import as_sglang_counts, as_vllm_counts
from radixd.gpu_pool.budget.node import Node, index_buffer_slots
from radixd.gpu_pool.budget.plan import Plan, PoolSize, Scratch
from radixd.gpu_pool.budget.scratch import LogitsWorkspace


def plan_dict(plan: Plan) -> dict[str, object]:
    """All that the plan says; a section that was not asked for is missing."""
    model, cost = plan.model, plan.model.cost
    sections: dict[str, object] = {
        "geometry": {
            "name": model.geometry.name,
            "source": model.geometry.source,
            "num_layers": model.geometry.num_layers,
            "layers": dict(cost.layers),
        },
        "bytes_per_slot": {**cost.parts, "cell": cost.cell},
        "page": {"slots": cost.page_slots, "tokens": cost.page_tokens},
        "bytes_per_page": {**cost.page_parts, "page": cost.page_bytes, "stride": cost.page_stride},
        "tail_waste_bytes_per_request": cost.tail_waste,
        "usable_tokens_in_100_GB": plan.reference_tokens,
        "contexts": [_context(context, plan.batch) for context in plan.contexts],
    }
    if plan.pool:
        sections |= {"pool": _pool(plan, plan.pool), "engines": _engines(plan, plan.pool)}
    if plan.node:
        sections["node"] = _node(plan.node, cost)
    if plan.host_pages:
        tokens = plan.host_pages * cost.page_tokens
        sections["host"] = {
            "pages": plan.host_pages,
            "tokens": tokens,
            "bytes": plan.host_pages * cost.page_bytes,
        }
    if plan.scratch:
        sections["outside_the_pool"] = _scratch(plan.scratch)
    if plan.hit:
        sections["hit"] = _hit(plan, plan.hit)
    if plan.admission:
        admission = plan.admission
        sections["admission"] = {
            "requests": [asdict(verdict) for verdict in admission.verdicts],
            "free_pages": admission.free,
            "tokens_for_all": admission.tokens_for_all,
        }
    return sections


def figures(sections: Mapping[str, object]) -> Iterator[tuple[str, int]]:
    """(name, value) of every number, after the names of its sections; an entry of a list is named by its tokens."""
    for name, value in sections.items():
        words = name.replace("_", " ")
        if isinstance(value, Mapping):
            yield from ((f"{words}: {inner}", leaf) for inner, leaf in figures(value))
        elif isinstance(value, list):
            for number, item in enumerate(value, start=1):
                entry = {key: leaf for key, leaf in item.items() if key != "tokens"}
                yield from ((f"{words} {number}, {item['tokens']:,} tokens: {k}", leaf) for k, leaf in figures(entry))
        elif isinstance(value, int):
            yield words, value


def _context(context: Context, batch: int) -> dict[str, object]:
    return {
        "tokens": context.tokens,
        "pages": context.pages,
        "bytes": {**context.parts, "total": context.nbytes},
        "batch": {"requests": batch, "pages": batch * context.pages, "bytes": batch * context.nbytes},
        "slot_table_bytes": context.slot_table_bytes,
        "page_table_bytes": context.page_table_bytes,
        "index_bytes_read_per_decode_step": context.index_read_bytes,
    }


def _pool(plan: Plan, pool: PoolSize) -> dict[str, object]:
    return {
        "origin": pool.origin,
        "given_bytes": pool.given_bytes,
        "pages": pool.pages,
        "tokens": pool.tokens,
        "bytes": pool.nbytes,
        "page_0_bytes": plan.model.cost.page_stride,
        "requests": [{"tokens": context.tokens, "at_once": pool.holds(context)} for context in plan.contexts],
    }


def _engines(plan: Plan, pool: PoolSize) -> dict[str, object]:
    return {
        "sglang": asdict(as_sglang_counts(plan.model.cost, pool.given_bytes)),
        "vllm": asdict(as_vllm_counts(plan.model.cost, pool.given_bytes)),
    }


def _node(node: Node, cost: Cost) -> dict[str, object]:
    size = node.pool_tokens // node.dcp  # slots of one rank
    return {
        "gpus": node.gpus,
        "tensor_parallel": asdict(node.tensor_parallel),
        "data_parallel_attention": asdict(node.data_parallel_attention),
        "index_buffer_slots_a_rank": index_buffer_slots(size, cost.page_slots, node.dcp),
    }


def _scratch(scratch: Scratch) -> dict[str, object]:
    return {
        "topk_indices_bytes": scratch.topk_bytes,
        "logits_budget_bytes": scratch.budget,
        "prefill_logits": _workspace(scratch.prefill),
        "decode_logits": _workspace(scratch.decode),
        "bytes": scratch.nbytes,
    }


def _workspace(work: LogitsWorkspace) -> dict[str, object]:
    return {**asdict(work), "chunks": work.chunks, "bytes": work.nbytes, "bytes_at_once": work.whole_nbytes}


def _hit(plan: Plan, hit: Hit) -> dict[str, object]:
    section: dict[str, object] = {
        "context": hit.context.tokens,
        "tokens": hit.tokens,
        "pages": hit.pages,
        "bytes_not_written": {**hit.parts_saved, "total": sum(hit.parts_saved.values())},
        "tokens_to_compute": hit.suffix,
        "pages_to_allocate": hit.suffix_pages,
    }
    if plan.model.indexer:
        section["pairs"] = {"saved": hit.pairs_saved, "cross": hit.cross_pairs, "own": hit.own_pairs}
        section["indexer_flop"] = {
            "per_pair": plan.model.indexer.flop_per_pair,
            "saved": plan.model.indexer.flop_per_pair * hit.pairs_saved,
            "left": plan.model.indexer.flop_per_pair * (hit.cross_pairs + hit.own_pairs),
        }
    return section
