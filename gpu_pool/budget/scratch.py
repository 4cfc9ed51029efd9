"""Memory that an engine takes outside the pool, once a process, and never gives back with a request."""

from dataclasses import dataclass

from radixd.gpu_pool.budget import BudgetError

TOPK = 2_048
"""GLM-5.3's and DeepSeek-V3.2's index_topk."""

BATCHED_TOKENS = 8_192
"""max_num_batched_tokens of an engine of which nothing is said."""

LOGITS_ITEMSIZE = 4
LOGITS_COLUMN_ALIGNMENT = 256
"""DeepGEMM pads a row of fp32 logits to 1,024 bytes."""

LOGITS_UNCHECKED_ELEMENTS = 8_000_000
"""SGLang 0.5.23 scores a smaller matrix at once, whatever the budget (mqa_logits_needs_budget_check)."""

LOGITS_TOTAL_SHARE = 0.3
LOGITS_FREE_SHARE = 0.2
"""SGLang's SGLANG_DSA_MQA_LOGITS_FREE_MEM_FRACTION, by default."""


def topk_indices_bytes(batched_tokens: int, topk: int = TOPK) -> int:
    """The int32 buffer of the chosen indices: one row for each token of the largest batch."""
    return _positive("max_num_batched_tokens", batched_tokens) * _positive("index_topk", topk) * 4


def logits_row_bytes(columns: int) -> int:
    """One query's fp32 score of `columns` tokens, as DeepGEMM pads it."""
    return -(-_positive("columns", columns) // LOGITS_COLUMN_ALIGNMENT) * LOGITS_COLUMN_ALIGNMENT * LOGITS_ITEMSIZE


def logits_budget(total_bytes: int, fraction: float | None = None, free_bytes: int | None = None) -> int:
    """The most that SGLang 0.5.23 gives to one matrix of logits (mqa_logits_budget_bytes).

    Args:
        total_bytes: the GPU's memory.
        fraction: mem_fraction_static; None for a GPU without such a limit.
        free_bytes: what is free at the time; None where nobody can ask, as under graph capture.
    """
    shares = [int(_positive("total_bytes", total_bytes) * LOGITS_TOTAL_SHARE)]
    if fraction is not None:
        shares.append(int(int(total_bytes * (1 - checked_fraction(fraction))) * LOGITS_FREE_SHARE))
    if free_bytes is not None:
        shares.append(int(free_bytes * LOGITS_FREE_SHARE))
    return max(1, min(shares))


@dataclass(frozen=True)
class LogitsWorkspace:
    """The matrix of indexer logits that one layer needs at a time: `rows` queries against `columns` cached tokens."""

    rows: int
    columns: int
    chunk_rows: int
    """Queries scored at once."""

    @property
    def chunks(self) -> int:
        """How many matrices it takes, one after the other."""
        return -(-self.rows // self.chunk_rows)

    @property
    def nbytes(self) -> int:
        """Bytes of the largest matrix."""
        return self.chunk_rows * logits_row_bytes(self.columns)

    @property
    def whole_nbytes(self) -> int:
        """Bytes that all rows at once would take."""
        return self.rows * logits_row_bytes(self.columns)


def logits_workspace(rows: int, columns: int, budget: int | None = None) -> LogitsWorkspace:
    """The workspace of `rows` queries: as many at a time as `budget` bytes hold, and all without one.

    Rows are the prompt tokens of one prefill batch, or a decode batch's requests × (drafts + 1).
    """
    row = logits_row_bytes(columns)
    _positive("rows", rows)
    if budget is None or rows * columns < LOGITS_UNCHECKED_ELEMENTS or rows * row <= budget:
        return LogitsWorkspace(rows, columns, rows)
    return LogitsWorkspace(rows, columns, max(1, budget // row))


def scratch_bytes(batched_tokens: int, context: int, budget: int | None = None, topk: int = TOPK) -> int:
    """What to leave free beside a pool: the top-k buffer, and the logits of a full batch over the longest context.

    Args:
        batched_tokens: max_num_batched_tokens: rows of the largest forward pass.
        context: tokens of the longest request: columns.
        budget: bytes that the logits may take at once (`logits_budget`); None: the engine does not chunk them.
        topk: the model's index_topk.
    """
    return topk_indices_bytes(batched_tokens, topk) + logits_workspace(batched_tokens, context, budget).nbytes


def checked_fraction(fraction: float) -> float:
    """A fraction of a GPU's memory, within (0, 1]; BudgetError otherwise."""
    if not 0 < fraction <= 1:
        raise BudgetError(f"fraction {fraction:g} is outside (0, 1]: it is a share of the GPU's memory, 0.9 for 90 %")
    return fraction


def _positive(name: str, value: int) -> int:
    if value < 1:
        raise BudgetError(f"{name} {value} is less than 1")
    return value
