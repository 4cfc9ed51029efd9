"""Which requests fit together: the plan says what the core does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixd.gpu_pool.budget import BudgetError
from radixd.gpu_pool.budget.admission import Outcome, Verdict, admit
from radixd.server.cache.prefix_cache import CacheConfig, PrefixCache
from radixd.server.cache.refusal import Reason, Refusal
from tests.scheduler import Scheduler
from tests.sequences import PAGE, ramp

MILLION = 2**20


def test_a_1_1_million_token_pool_takes_a_1m_request_and_8k_but_not_128k() -> None:
    plan = admit((MILLION, 2**17, 2**13), pages=17_187, page_tokens=64)
    assert plan.verdicts == (
        Verdict(MILLION, 16_384, "admitted", 0),
        Verdict(2**17, 2_048, "waits", 2_048 - 803),
        Verdict(2**13, 128, "admitted", 0),
    )
    assert plan.free == 675
    assert plan.tokens_for_all == MILLION + 2**17 + 2**13


def test_a_million_token_pool_never_takes_a_1m_request() -> None:
    (verdict,) = admit((MILLION,), pages=15_625, page_tokens=64).verdicts
    assert (verdict.outcome, verdict.missing) == ("never", 759)


def test_exactly_what_fits() -> None:
    plan = admit((64, 65, 1), pages=4, page_tokens=64)
    assert [verdict.outcome for verdict in plan.verdicts] == ["admitted"] * 3
    assert plan.free == 0


@pytest.mark.parametrize("tokens", [0, -1])
def test_a_request_has_a_token(tokens: int) -> None:
    with pytest.raises(BudgetError, match=f"admit {tokens}: a request has at least one token"):
        admit((tokens,), 1, 64)


@given(requests=st.lists(st.integers(1, 12 * PAGE), min_size=1, max_size=8))
def test_the_core_admits_the_same(requests: list[int]) -> None:
    one = Scheduler(PrefixCache(CacheConfig(10)), 1)

    def outcome(number: int, tokens: int) -> Outcome:
        try:
            one.acquire(ramp(1, start=number), allocate_to=0, reserve_to=tokens)
        except Refusal as refusal:
            return "never" if refusal.reason is Reason.NEVER_FITS else "waits"
        return "admitted"

    happened = [outcome(number, tokens) for number, tokens in enumerate(requests)]
    assert happened == [verdict.outcome for verdict in admit(requests, 10, PAGE).verdicts]
