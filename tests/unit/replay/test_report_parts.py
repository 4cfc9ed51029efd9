"""Counts from many processes add up."""

import pytest

from radixd.server.replay.counted import counted
from radixd.server.replay.hits import Hits
from radixd.server.replay.journal import Journal
from radixd.server.replay.latency import Latencies
from radixd.server.replay.page_counts import PageCounts
from radixd.server.replay.pool_admin import Ledger, TierLedger
from radixd.server.replay.tally import MAX_MISMATCH_TEXTS, Outcome, Progress, Tally
from radixd.v1 import admin_pb2


def test_a_quantile_is_right_to_a_bucket() -> None:
    latencies = Latencies()
    for millisecond in range(1, 1001):
        latencies.record(millisecond * 1e-3)
    assert latencies.samples == 1000
    assert latencies.quantile(0.5) == pytest.approx(0.5, rel=0.1)
    assert latencies.quantile(0.99) == pytest.approx(0.99, rel=0.1)
    assert Latencies().quantile(0.5) == 0.0


def test_tallies_add_up_and_keep_a_few_texts() -> None:
    one, other = Tally(bytes_verified=3), Tally(bytes_verified=4, rollbacks=1)
    for number in range(20):
        other.mismatch(f"page {number}")
    one.latencies["acquire"].record(0.1)
    other.latencies["acquire"].record(0.2)
    other.latencies["release"].record(0.3)
    one.add(other)
    assert (one.bytes_verified, one.rollbacks, one.mismatches) == (7, 1, 20)
    assert len(one.mismatch_texts) == MAX_MISMATCH_TEXTS
    assert one.latencies["acquire"].samples == 2
    assert one.latencies["release"].samples == 1


def test_one_thing_is_no_plural() -> None:
    assert [counted(number, "kill") for number in (0, 1, 2, 1000)] == ["0 kills", "1 kill", "2 kills", "1,000 kills"]


def test_a_journal_sends_each_thing_once() -> None:
    sent: list[Progress] = []
    journal = Journal(sent.append)
    journal.tally.rollbacks += 1
    journal.end(Outcome(4, "finished", 10, 0))
    journal.flush()
    journal.flush()
    assert [outcome.index for progress in sent for outcome in progress.outcomes] == [4]
    assert sum(progress.tally.rollbacks for progress in sent) == 1
    assert journal.ended == {4}


def test_counts_add_up_over_the_lives_of_a_daemon() -> None:
    began = PageCounts.of(admin_pb2.PoolOccupancy(evicted_pages=5))
    stopped = PageCounts.of(admin_pb2.PoolOccupancy(evicted_pages=9, promoted_pages=2))
    second = PageCounts.of(admin_pb2.PoolOccupancy(evicted_pages=1, restored_pages=3))
    assert stopped - began + second == PageCounts(evicted_pages=5, promoted_pages=2, restored_pages=3)


@pytest.mark.parametrize(
    ("device", "host", "leases", "ok"),
    [
        (TierLedger(10, 4, 6, 0), TierLedger(0, 0, 0, 0), 0, True),
        (TierLedger(10, 4, 6, 0), TierLedger(5, 1, 4, 0), 0, True),
        (TierLedger(10, 4, 5, 1), TierLedger(5, 1, 4, 0), 0, False),
        (TierLedger(10, 4, 6, 0), TierLedger(5, 1, 3, 1), 0, False),
        (TierLedger(10, 4, 6, 0), TierLedger(5, 1, 3, 0), 0, False),
        (TierLedger(10, 4, 6, 0), TierLedger(5, 1, 4, 0), 1, False),
    ],
)
def test_a_ledger_is_right_where_both_tiers_are(device: TierLedger, host: TierLedger, leases: int, ok: bool) -> None:
    assert Ledger(device, host, leases, ()).ok == ok


def test_two_pools_ledgers_add_up() -> None:
    one = Ledger(TierLedger(10, 4, 6, 0), TierLedger(5, 1, 4, 0), 0, ())
    other = Ledger(TierLedger(20, 3, 16, 1), TierLedger(0, 0, 0, 0), 2, ("page 7 has two owners",))
    both = one + other
    assert both == Ledger(TierLedger(30, 7, 22, 1), TierLedger(5, 1, 4, 0), 2, ("page 7 has two owners",))
    assert str(both).startswith("NOT balanced")


def test_hits_are_those_of_the_requests_that_ended() -> None:
    ended = [Outcome(0, "finished", 300, 256, 64, 128), Outcome(4, "aborted", 100, 0), Outcome(5, "never_fit", 0, 0)]
    hits = Hits.of(ended)
    assert (hits.requests, hits.prompt_tokens) == (3, 400)
    assert (hits.device_hit_tokens, hits.host_hit_tokens, hits.peer_hit_tokens) == (64, 64, 128)
    assert hits.rate == 0.64
    assert Hits.of(()).rate == 0.0
