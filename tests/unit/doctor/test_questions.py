"""Each question, asked of scrapes that differ from a healthy one in the numbers that it is about."""

import pytest

from radixd.server.doctor import thresholds
from radixd.server.doctor.copies import copies_fail, copy_overdue
from radixd.server.doctor.decode import decode_reads_long_contexts
from radixd.server.doctor.evidence import NodeFacts
from radixd.server.doctor.examination import QUESTIONS, examine
from radixd.server.doctor.expectation import Expectation
from radixd.server.doctor.hits import hits_spare_little
from radixd.server.doctor.host_tier import host_tier_skipped, host_tier_thrashes
from radixd.server.doctor.locks import lock_held_long
from radixd.server.doctor.priorities import priority_inverted
from radixd.server.doctor.retired import retired_pages_stuck
from radixd.server.doctor.scrape import Scrape, Untold
from radixd.server.doctor.starvation import long_requests_starve
from radixd.server.doctor.stopped import daemon_silent, gpu_silent, ledger_mismatch, pool_broken
from radixd.server.doctor.tail import tail_waste
from tests.unit.doctor.saved import PAGES, P, evidence, facts, scrape, session, text

PAGE_BYTES = 5_376


def test_a_healthy_pool_has_no_finding_and_answers_everything() -> None:
    expected = Expectation(tokens=PAGES * P)
    diagnosis = examine(evidence(sessions=(), tree=(), seconds=60.0, expected=expected))
    assert diagnosis.findings == ()
    assert diagnosis.untold == ()
    assert list(diagnosis.denied) == list(QUESTIONS)


def test_a_scrape_alone_says_what_it_cannot_tell() -> None:
    diagnosis = examine(evidence())
    assert diagnosis.findings == ()
    capacity, tree, sessions = diagnosis.untold
    assert capacity.startswith("is capacity below the expected? what was expected of it? Say --expect")
    assert tree == "are priorities inverted? the tree is not in a scrape, only a running daemon has it"
    assert sessions == "who holds pages? only a running daemon names its sessions"


def test_a_family_that_is_missing_is_named() -> None:
    lines = [line for line in text().splitlines() if not line.startswith("radixd_tail_waste")]
    whole = evidence()
    part = type(whole)("default", Scrape.parse("\n".join(lines)), sessions=(), tree=())
    told = [line for line in examine(part).untold if "waste" in line]
    assert told == ['do last pages waste the pool? no radixd_tail_waste_bytes{pool="default"} in the scrape']


# --- refusals

STARVED = {
    'radixd_allocation_failures_total{reason="reserved"}': 9,
    'radixd_allocation_failures_total{reason="held"}': 2,
    "radixd_refused_pages_sum": 9 * 800 + 2 * 30,
    "radixd_refused_pages_count": 11,
    "radixd_reserved_pages": 700,
    "radixd_max_fit_pages": 300,
}


def test_long_requests_starve_behind_reservations() -> None:
    mine, other = session("greedy", reserved=700), session("modest", reserved=2)
    finding = long_requests_starve(evidence(STARVED, sessions=(other, mine, session("none"))))
    assert finding
    assert finding.name == "LongRequestsStarve"
    assert "need 660 pages are refused while requests of 18 pass: enough pages are free" in finding.cause
    assert "reserve_to" in finding.next_step
    told = facts(finding)
    assert told["refused, reserved"] == 9
    assert told["refused, held"] == 2
    assert told["max_fit pages now"] == 300
    assert told["free pages now"] == 454
    assert [what for what in told if what.startswith("reserved pages,")] == [
        "reserved pages, session 7 'greedy', pid 123",
        "reserved pages, session 7 'modest', pid 123",
    ]


def test_refusals_of_the_usual_size_are_a_full_pool_and_no_starvation() -> None:
    assert long_requests_starve(evidence({**STARVED, "radixd_refused_pages_sum": 11 * 36})) is None
    assert long_requests_starve(evidence({**STARVED, "radixd_refused_pages_sum": 11 * 37})) is not None


def test_what_happened_before_the_watch_is_over() -> None:
    assert long_requests_starve(evidence(STARVED, before=STARVED)) is None


def test_nothing_at_all_is_granted() -> None:
    idle = {"radixd_hit_length_tokens_count": 109, "radixd_requested_tokens_total": 127_631}
    few = {**STARVED, "radixd_refused_pages_sum": 11}
    finding = long_requests_starve(evidence({**few, **idle}, before=idle))
    assert finding
    assert "need 1 pages are refused and nothing is granted" in finding.cause


@pytest.mark.parametrize(
    ("reason", "do"),
    [
        ("retired", "last completed step"),
        ("held", "one group"),
        ("host", "larger host tier"),
        ("reserved", "reserve_to"),
    ],
)
def test_what_to_do_follows_from_what_is_in_the_way(reason: str, do: str) -> None:
    most = {**STARVED, f'radixd_allocation_failures_total{{reason="{reason}"}}': 100}
    finding = long_requests_starve(evidence(most))
    assert finding
    assert do in finding.next_step


# --- hits

LONG_PROMPTS = {
    "radixd_requested_tokens_total": 1_000_000,
    'radixd_hit_tokens_total{tier="device"}': 700_000,
}


def test_a_few_long_hits_make_the_rate() -> None:
    finding = hits_spare_little(evidence(LONG_PROMPTS))
    assert finding
    assert finding.cause == (
        "70% of the tokens are hits, but 72% of the requests found 1,024 tokens or fewer: a few long hits make the rate"
    )
    assert facts(finding)["of them, those that found none"] == 13


def test_short_hits_on_short_prompts_are_as_good_as_they_get() -> None:
    assert hits_spare_little(evidence()) is None


def test_a_low_rate_is_no_surprise() -> None:
    assert hits_spare_little(evidence({**LONG_PROMPTS, 'radixd_hit_tokens_total{tier="device"}': 500_000})) is None


def test_long_suffixes_cost_more_than_the_hits_spared() -> None:
    pairs = {"radixd_indexer_pairs_saved_total": 2e9, "radixd_indexer_pairs_left_total": 3e9}
    finding = hits_spare_little(evidence(pairs))
    assert finding
    assert "(P·S) costs 1.5 times what they spared (P²/2)" in finding.cause
    assert facts(finding)["indexer pairs left, P·S"] == 3 * 10**9
    assert hits_spare_little(evidence({**pairs, "radixd_indexer_pairs_left_total": 2e9})) is None


FROM_HOST = {
    'radixd_hit_tokens_total{tier="device"}': 16_208,
    'radixd_hit_tokens_total{tier="host"}': 70_000,
    'radixd_copies_total{kind="promote"}': 10,
    'radixd_copy_seconds_total{kind="promote"}': 20,
    'radixd_tier_pages_total{kind="promote"}': 1_000,
}


def test_hits_wait_for_the_host() -> None:
    finding = hits_spare_little(evidence(FROM_HOST))
    assert finding
    assert "81% of them come from the host, and wait for copies that bring 3,200 tokens a second" in finding.cause
    assert facts(finding)["seconds of a promotion, from its plan on, mean"] == 2.0
    fast = {**FROM_HOST, 'radixd_copy_seconds_total{kind="promote"}': 6.4}
    assert hits_spare_little(evidence(fast)) is None, "as fast as computing"


def test_without_an_acquire_hits_cannot_be_judged() -> None:
    with pytest.raises(Untold, match="no Acquire was granted"):
        hits_spare_little(evidence(before={}))


# --- decode

DECODE = {
    'radixd_token_bytes{component="index"}': 2_772,
    "radixd_active_lease_tokens": 9_000_000,
    'radixd_leases{state="active"}': 9,
}


def test_a_decode_step_reads_long_contexts() -> None:
    finding = decode_reads_long_contexts(evidence(DECODE))
    assert finding
    assert "reads 24.9 GB of index keys, all of 9 contexts of 1,000,000 tokens: 5.2 ms" in finding.cause
    told = facts(finding)
    assert told["index bytes that a step reads"] == 9_000_000 * 132 * 21
    assert told["index bytes that a token of a mean context reads"] == 2_772_000_000
    assert told["leases that have ended"] == 109
    assert told["of them, those above 262,144 tokens"] == 0


def test_below_five_milliseconds_decode_is_as_it_should_be() -> None:
    assert decode_reads_long_contexts(evidence({**DECODE, "radixd_active_lease_tokens": 8_650_000})) is None


# --- the others


def test_silent_sessions_hold_locks() -> None:
    held = {"radixd_idle_locks_held": 2, "radixd_locks_held": 5, "radixd_oldest_lock_seconds": 70}
    finding = lock_held_long(evidence(held, sessions=(session("hangs", idle=65.0), session("works", idle=1.0))))
    assert finding
    assert "2 leases of sessions that have been silent for 30 s" in finding.cause
    assert facts(finding)["seconds silent with active leases, session 7 'hangs', pid 123"] == 65
    assert not [what for what in facts(finding) if "works" in what]


def test_an_old_lock_is_told_of_though_its_session_speaks() -> None:
    assert lock_held_long(evidence({"radixd_oldest_lock_seconds": 3_600})) is None
    finding = lock_held_long(evidence({"radixd_oldest_lock_seconds": 3_601}))
    assert finding
    assert "held its prefix for 3,601 s" in finding.cause


RETIRED = {
    'radixd_sessions{state="ended"}': 1,
    'radixd_pages{tier="device",state="retired"}': 30,
    'radixd_pages{tier="device",state="free"}': 424,
}


def test_ended_sessions_keep_pages() -> None:
    finding = retired_pages_stuck(evidence(RETIRED, sessions=(session("gone", ended=True, retired=30),)))
    assert facts(finding)["retired pages, session 7 'gone', pid 123"] == 30


def test_a_session_that_has_only_just_ended_is_given_time() -> None:
    assert retired_pages_stuck(evidence(RETIRED, before={})) is None
    assert retired_pages_stuck(evidence(RETIRED, before=RETIRED)) is not None


THRASHES = {
    'radixd_copy_bytes_total{kind="demote"}': 2_000 * PAGE_BYTES,
    'radixd_evicted_pages_total{tier="host"}': 1_001,
    'radixd_tier_pages_total{kind="demote"}': 1_900,
    'radixd_tier_pages_total{kind="promote"}': 199,
}


def test_the_host_drops_what_it_is_given() -> None:
    finding = host_tier_thrashes(evidence(THRASHES))
    assert finding
    assert "of 2,000 pages that were copied to the host it evicted 1,001, and 199 came back" in finding.cause
    assert host_tier_thrashes(evidence({**THRASHES, 'radixd_evicted_pages_total{tier="host"}': 1_000})) is None
    assert host_tier_thrashes(evidence({**THRASHES, 'radixd_tier_pages_total{kind="promote"}': 200})) is None


def test_pages_go_to_the_host_and_come_back_at_once() -> None:
    bounce = {'radixd_tier_pages_total{kind="demote"}': 900, 'radixd_tier_pages_total{kind="promote"}': 800}
    finding = host_tier_thrashes(evidence(bounce, seconds=40.0))
    assert finding
    assert "as many pages as the device has go to the host and come back every 50 s" in finding.cause
    assert host_tier_thrashes(evidence(bounce, seconds=48.0)) is None
    assert host_tier_thrashes(evidence(bounce)) is None, "over which time?"


@pytest.mark.parametrize(
    ("reason", "do"), [("outrun", "free_target_pages"), ("busy", "max_copy_pages"), ("full", "give it more")]
)
def test_pages_leave_without_a_copy(reason: str, do: str) -> None:
    demoted = {'radixd_tier_pages_total{kind="demote"}': 50}
    series = f'radixd_demote_skipped_pages_total{{reason="{reason}"}}'
    finding = host_tier_skipped(evidence({**demoted, series: 51}))
    assert finding
    assert do in finding.next_step
    assert host_tier_skipped(evidence({**demoted, series: 50})) is None


EVICTS = {'radixd_evicted_pages_total{tier="device",reason="demand"}': 5}


def test_locks_of_low_priority_leave_only_higher_pages_to_go() -> None:
    tree = [NodeFacts(101, True, 10), NodeFacts(50, False, 60), NodeFacts(50, False, 90), NodeFacts(0, False, 1)]
    finding = priority_inverted(evidence(EVICTS, tree=tree))
    assert finding
    assert "lock 101 pages of lower priority than 60" in finding.cause
    assert priority_inverted(evidence(tree=tree)) is None, "nothing is evicted"
    few = [NodeFacts(100, True, 10), *tree[1:]]
    assert priority_inverted(evidence(EVICTS, tree=few)) is None
    lower = [*tree, NodeFacts(1, False, 10)]
    assert priority_inverted(evidence(EVICTS, tree=lower)) is None, "its turn comes first"


def test_a_policy_that_does_not_look_at_priorities() -> None:
    tree = [NodeFacts(5, False, 10), NodeFacts(5, False, 90)]
    lru = Scrape.parse(text(EVICTS).replace('policy="priority"', 'policy="lru"'))
    finding = priority_inverted(type(evidence())("default", lru, tree=tuple(tree)))
    assert finding
    assert "the policy `lru` looks at none" in finding.cause
    assert priority_inverted(evidence(EVICTS, tree=tree)) is None
    assert priority_inverted(type(evidence())("default", lru, tree=(tree[0], tree[0]))) is None


def test_tails_waste_the_pool() -> None:
    waste = {
        "radixd_tail_waste_bytes": 50 * PAGE_BYTES + 1,
        'radixd_leases{state="active"}': 100,
        "radixd_active_lease_tokens": 3_200,
    }
    finding = tail_waste(evidence(waste))
    assert finding
    assert facts(finding)["pages that they would fill"] == 50
    assert tail_waste(evidence({**waste, "radixd_tail_waste_bytes": 50 * PAGE_BYTES})) is None


def test_a_pool_that_is_stopped() -> None:
    finding = pool_broken(evidence({"radixd_pool_broken": 1}))
    assert finding
    assert "CRITICAL" in finding.next_step


def test_pages_without_an_owner() -> None:
    finding = ledger_mismatch(evidence({'radixd_pages{tier="host",state="free"}': 917}))
    assert facts(finding) == {"unaccounted host pages": 2}


def test_a_silent_loop() -> None:
    assert daemon_silent(scrape()) is None
    finding = daemon_silent(scrape({"radixd_loop_answers": 0, "radixd_event_loop_longest_stall_seconds": 7.5}))
    assert facts(finding)["longest stall, s"] == 7.5


def test_a_gpu_that_is_silent() -> None:
    finding = copy_overdue(evidence({"radixd_copies_overdue": 3, "radixd_in_copy_pages": 40}))
    assert finding
    assert "a GPU or a disk is silent" in finding.cause
    assert copy_overdue(evidence({"radixd_copies_overdue": 3}, before={})) is None, "it is late for the first time"


def test_gpus_that_do_not_answer() -> None:
    finding = gpu_silent(evidence({"radixd_pool_silent": 1, "radixd_copies_in_flight": 2}))
    assert facts(finding) == {"radixd_pool_silent": 1, "copies in flight": 2}
    assert gpu_silent(evidence()) is None


def test_copies_that_fail() -> None:
    finding = copies_fail(evidence({'radixd_copies_failed_total{kind="offload"}': 2}))
    assert facts(finding) == {"failed, offload": 2}


def test_thresholds_are_bounds_of_the_histograms() -> None:
    le = f"{thresholds.SHORT_HIT_TOKENS:.1f}"
    assert scrape().has("radixd_hit_length_tokens_bucket", le=le)
