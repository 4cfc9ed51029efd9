"""Delays between tries."""

from radixd.client.backoff import FIRST_SECONDS, MOST_SECONDS, Backoff
from radixd.client.errors import Starting, Unreachable


def test_delays_grow_to_a_small_cap_with_jitter():
    backoff = Backoff(patience=10.0, clock=lambda: 0.0)
    delays = [backoff.delay(Unreachable("gone")) for _ in range(12)]
    assert FIRST_SECONDS / 2 <= delays[0] <= FIRST_SECONDS
    assert all(delay <= MOST_SECONDS for delay in delays)
    assert delays[-1] >= MOST_SECONDS / 2
    assert len(set(delays)) == len(delays)


def test_the_daemons_own_wish_counts():
    assert Backoff(1.0).delay(Starting("soon", retry_after=4.0)) >= 2.0


def test_patience_ends():
    now = [0.0]
    backoff = Backoff(patience=2.0, clock=lambda: now[0])
    assert not backoff.exhausted
    now[0] = 2.0
    assert backoff.exhausted
