"""What an engine takes outside the pool: the top-k buffer, the logits, and what is left to the pool."""

import pytest

from radixd.gpu_pool.budget import BudgetError
from radixd.gpu_pool.budget.capacity import pool_bytes
from radixd.gpu_pool.budget.scratch import (
    logits_budget,
    logits_row_bytes,
    logits_workspace,
    scratch_bytes,
    topk_indices_bytes,
)

MIB, GIB, MILLION = 2**20, 2**30, 2**20
"""1M tokens of context are 2^20."""


def test_the_top_k_buffer_is_8_kib_a_batched_token() -> None:
    assert topk_indices_bytes(2_048) == 16 * MIB
    assert topk_indices_bytes(8_192) == 64 * MIB
    assert topk_indices_bytes(10, topk=3) == 120


def test_logits_rows_are_padded_to_256_columns() -> None:
    assert logits_row_bytes(MILLION) == 4 * MIB
    assert logits_row_bytes(1) == logits_row_bytes(256) == 1_024
    assert logits_row_bytes(257) == 2_048


def test_32k_rows_over_1m_context_are_128_gib_at_once() -> None:
    assert logits_workspace(32_768, MILLION).nbytes == 128 * GIB


def test_rows_beyond_the_budget_are_scored_in_chunks() -> None:
    work = logits_workspace(8_192, MILLION, budget=GIB)
    assert (work.chunk_rows, work.chunks, work.nbytes, work.whole_nbytes) == (256, 32, GIB, 32 * GIB)
    assert logits_workspace(257, MILLION, budget=GIB).chunks == 2
    assert logits_workspace(256, MILLION, budget=GIB).chunks == 1
    assert logits_workspace(8, MILLION, budget=1).chunk_rows == 1


def test_a_matrix_below_8_million_elements_is_scored_at_once_whatever_the_budget() -> None:
    assert logits_workspace(7_999, 1_000, budget=1).chunks == 1
    assert logits_workspace(8_000, 1_000, budget=1).chunks == 8_000


def test_drafts_multiply_decode_rows() -> None:
    assert logits_workspace(32 * (3 + 1), MILLION).nbytes == 4 * logits_workspace(32, MILLION).nbytes


def test_the_logits_budget_is_the_least_of_three_shares() -> None:
    total = 141 * 10**9
    assert logits_budget(total) == 42_300_000_000
    assert logits_budget(total, fraction=0.75) == 7_050_000_000
    assert logits_budget(total, fraction=0.75, free_bytes=10**9) == 200_000_000
    assert logits_budget(total, fraction=1.0) == 1


def test_scratch_is_both_together() -> None:
    assert scratch_bytes(8_192, MILLION, budget=GIB) == 64 * MIB + GIB
    assert scratch_bytes(8_192, MILLION) == 64 * MIB + 32 * GIB


def test_a_pool_takes_its_fraction_of_what_the_scratch_leaves() -> None:
    assert pool_bytes(140 * 10**9, 0.75) == 105 * 10**9
    assert pool_bytes(141 * 10**9, 0.75, scratch_bytes=10**9) == 105 * 10**9
    assert pool_bytes(100, 1.0, 99) == 1


@pytest.mark.parametrize(
    ("free", "fraction", "scratch", "expected"),
    [
        (100, 1.2, 0, "fraction 1.2 is outside (0, 1]"),
        (100, 0, 0, "fraction 0 is outside (0, 1]"),
        (100, float("nan"), 0, "fraction nan is outside (0, 1]"),
        (-1, 0.9, 0, "free memory -1 bytes is negative"),
        (100, 0.9, -1, "scratch_bytes -1 is negative"),
        (100, 0.9, 100, "scratch_bytes 100 leaves nothing of the 100 bytes"),
    ],
)
def test_memory_that_cannot_be_shared_is_refused_in_one_line(
    free: int, fraction: float, scratch: int, expected: str
) -> None:
    with pytest.raises(BudgetError) as raised:
        pool_bytes(free, fraction, scratch)
    assert str(raised.value).startswith(expected)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("rows", "columns"), [(0, 1), (1, 0), (-1, 1)])
def test_scratch_of_nothing_is_refused(rows: int, columns: int) -> None:
    with pytest.raises(BudgetError, match="less than 1"):
        scratch_bytes(rows, columns)
