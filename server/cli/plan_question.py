"""What `radixd plan` is asked about requests, engine and node."""

from collections.abc import Mapping
from dataclasses import dataclass

from radixd.gpu_pool.budget.admission import admit
from radixd.gpu_pool.budget.context import Context, Hit
from radixd.gpu_pool.budget.node import Node
from radixd.gpu_pool.budget.plan import Model, Plan, PoolSize, Scratch
from radixd.gpu_pool.budget.scratch import BATCHED_TOKENS, logits_workspace, topk_indices_bytes
from radixd.server.cli import plan_values
from radixd.server.config.table import Table

CONTEXTS = (2**13, 2**17, 2**19, 2**20)
NODE_GPUS = 8
MAX_COUNT = 2**20

QUESTIONS = ("context", "batch", "drafts", "max-batched-tokens", "hit", "admit", "node-gpus")
"""Flags that may stand beside a configuration; all others say what the pool is."""


@dataclass(frozen=True)
class Question:
    """Lengths are in tokens."""

    contexts: tuple[int, ...]
    batch: int
    drafts: int
    batched_tokens: int
    hit: int
    """0: not asked for. So is an empty `admit`."""
    admit: tuple[int, ...]
    gpus: int

    def scratch(self, model: Model, budget: int | None) -> Scratch | None:
        """What the engine takes beside the pool, its logits within `budget` bytes; None without an indexer."""
        if model.indexer is None:
            return None
        columns = max(self.contexts)
        return Scratch(
            topk_bytes=topk_indices_bytes(self.batched_tokens),
            prefill=logits_workspace(self.batched_tokens, columns, budget),
            decode=logits_workspace(self.batch * (self.drafts + 1), columns, budget),
            budget=budget,
        )

    def plan(self, model: Model, pool: PoolSize | None, host_pages: int, budget: int | None) -> Plan:
        """The answers for one model and pool."""
        cost = model.cost
        return Plan(
            model=model,
            contexts=tuple(Context(cost, tokens) for tokens in self.contexts),
            batch=self.batch,
            pool=pool,
            host_pages=host_pages,
            scratch=self.scratch(model, budget),
            hit=Hit(Context(cost, max(self.contexts)), self.hit) if self.hit else None,
            admission=admit(self.admit, pool.pages, cost.page_tokens) if self.admit and pool else None,
            node=Node(self.gpus, pool.tokens, model.dcp) if pool else None,
        )


def read_question(flags: Mapping[str, object], contexts: tuple[int, ...] = CONTEXTS) -> Question:
    """The question that the flags ask, or by default; `contexts` are those to show where none is asked for.

    Raises ConfigError, which holds all mistakes.
    """
    table = Table({name: value for name, value in flags.items() if name in QUESTIONS}, "--")
    count, maybe_none = plan_values.whole(1, MAX_COUNT), plan_values.whole(0, MAX_COUNT)
    question = Question(
        contexts=table.get("context", plan_values.token_list, contexts),
        batch=table.get("batch", count, 1),
        drafts=table.get("drafts", maybe_none, 0),
        batched_tokens=table.get("max-batched-tokens", plan_values.tokens, BATCHED_TOKENS),
        hit=table.get("hit", plan_values.tokens, 0),
        admit=table.get("admit", plan_values.token_list, ()),
        gpus=table.get("node-gpus", count, NODE_GPUS),
    )
    table.finish()
    return question
