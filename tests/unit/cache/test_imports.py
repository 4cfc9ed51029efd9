"""Imports in the core: what a peer lends, what a borrower gets, and what both are left with however it ends."""

from collections.abc import Iterator

import numpy as np
import pytest

from radixd.server.cache.config import WritePolicy
from radixd.server.cache.importing import Peer
from radixd.server.cache.invariants import check_invariants
from radixd.server.cache.namespace import Namespace
from radixd.server.cache.prefix_cache import CacheConfig
from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.cache.results import AcquireResult, CopyKind, ImportPlan, MatchResult
from radixd.server.cache.speculative import Speculative
from tests.scheduler import Scheduler
from tests.sequences import PAGE, seq


class Node:
    """A node's pools, each with one scheduler; all may import from all."""

    def __init__(self, *configs: CacheConfig) -> None:
        self.pools = {f"gpu{rank}": Scheduler.alone(config) for rank, config in enumerate(configs)}
        self.stopped: set[str] = set()
        for name, pool in self.pools.items():
            others = [(it, other.cache.lender) for it, other in self.pools.items() if it != name]
            pool.cache.importer.peers = tuple(
                Peer(other, lender, lambda other=other: other not in self.stopped) for other, lender in others
            )

    def __iter__(self) -> Iterator[Scheduler]:
        return iter(self.pools.values())

    def end(self, plan: ImportPlan, borrower: Scheduler, error: str = "") -> None:
        """The copy ends, first for the lender."""
        self.pools[plan.peer].cache.finish_copy(plan.loan_id)
        borrower.cache.finish_copy(plan.copy_id, error)
        self.check()

    def check(self) -> None:
        for pool in self:
            check_invariants(pool.cache)


def config(pages: int = 16, **rest: object) -> CacheConfig:
    return CacheConfig(pages, **{"import_min_pages": 2, **rest})  # type: ignore[arg-type]


def pair(pages: int = 16, **rest: object) -> tuple[Node, Scheduler, Scheduler]:
    node = Node(config(pages, **rest), config(pages, **rest))
    lender, borrower = node
    return node, lender, borrower


def ask(one: Scheduler, letters: str, **rest: int) -> AcquireResult:
    return one.acquire(seq(letters), import_from_peers=True, **rest)


def match(one: Scheduler, letters: str) -> MatchResult:
    tokens = seq(letters)
    return one.cache.match(one.id, one.namespace, tokens, max_tokens=len(tokens) // 4, peek=True, peers=True)


def test_a_peers_prefix_arrives_and_is_the_pools_own_from_then_on() -> None:
    node, lender, borrower = pair()
    lender.publish(seq("ABCD"))
    found = match(borrower, "ABCDE")
    assert (found.device_tokens, found.host_tokens, found.peer_tokens, found.peer) == (0, 0, 4 * PAGE, "gpu0")

    got = ask(borrower, "ABCDE")
    assert (got.device_tokens, got.host_tokens, got.peer_tokens, len(got.loading)) == (4 * PAGE, 0, 4 * PAGE, 1)
    (plan,) = borrower.cache.take_imports()
    assert (plan.copy_id, plan.peer) == (got.loading[0], "gpu0")
    assert plan.target_pages.tolist() == got.pages[:4].tolist()
    assert sorted(plan.source_pages.tolist()) == lender.cache.ledger.owned_by(2).tolist()
    assert lender.cache.occupancy().in_copy == borrower.cache.occupancy().in_copy == 4
    node.check()

    with pytest.raises(Refusal) as refused:
        borrower.insert(got.lease_id, 5 * PAGE)
    assert refused.value.reason is Reason.IN_FLIGHT
    node.end(plan, borrower)
    (arrival,) = borrower.cache.take_arrivals(borrower.id)
    assert arrival == (got.lease_id, plan.copy_id, 4 * PAGE, (), "")
    borrower.release(got.lease_id, publish_to=5 * PAGE)
    lender.cache.flush()
    assert borrower.cached(seq("ABCDE")) == 5 * PAGE
    assert borrower.cache.counters.imported_pages == lender.cache.counters.lent_pages == 4
    assert borrower.cache.counters.imported_hit_tokens == 4 * PAGE
    assert borrower.cache.counters.host_hit_tokens == 0


def test_nobody_imports_who_has_not_asked() -> None:
    _, lender, borrower = pair()
    lender.publish(seq("ABCD"))
    assert borrower.cache.match(borrower.id, borrower.namespace, seq("ABCDE")).peer_tokens == 0
    got = borrower.acquire(seq("ABCDE"))
    assert (got.device_tokens, got.loading, borrower.cache.take_imports()) == (0, (), ())


def test_a_waiting_lease_imports_when_it_is_activated() -> None:
    _, lender, borrower = pair()
    lender.publish(seq("ABCD"))
    lease = borrower.cache.wait(borrower.id, borrower.namespace, seq("ABCDE"))
    assert borrower.cache.match_lease(borrower.id, lease, peers=True).peer_tokens == 4 * PAGE
    assert borrower.cache.activate(borrower.id, lease, import_from_peers=True).peer_tokens == 4 * PAGE


@pytest.mark.parametrize(("own", "imported"), [("", 4), ("A", 3), ("AB", 2), ("ABC", 0), ("ABCD", 0)])
def test_only_what_is_missing_is_copied_and_only_if_it_is_enough(own: str, imported: int) -> None:
    node, lender, borrower = pair()
    lender.publish(seq("ABCD"))
    if own:
        borrower.publish(seq(own))
    got = ask(borrower, "ABCDE")
    assert got.peer_tokens == imported * PAGE
    assert got.device_tokens == (len(own) + imported) * PAGE
    (held,) = lender.cache.tree
    plans = borrower.cache.take_imports()
    assert [plan.source_pages.tolist() for plan in plans] == [held.pages[len(own) :].tolist()] * (imported > 0)
    assert [len(plan.target_pages) for plan in plans] == [imported] * (imported > 0)
    node.check()


def test_what_the_host_holds_comes_from_the_peer_where_the_peer_has_more() -> None:
    node, lender, borrower = pair(host_pages=8, write_policy=WritePolicy.WRITE_THROUGH)
    lender.publish(seq("ABCDEF"))
    borrower.publish(seq("ABC"))
    for plan in borrower.cache.take_plans():
        borrower.cache.finish_copy(plan.copy_id)
    borrower.cache.evict(2)
    assert (match(borrower, "ABCDEF")[:2], match(borrower, "ABCDEF").peer_tokens) == ((PAGE, 2 * PAGE), 3 * PAGE)

    got = ask(borrower, "ABCDEFG")
    assert (got.host_tokens, got.peer_tokens) == (0, 5 * PAGE)
    (plan,) = borrower.cache.take_imports()
    node.end(plan, borrower)
    saves = borrower.cache.take_plans()
    assert [(it.kind, len(it.device_pages)) for it in saves] == [(CopyKind.DEMOTE, 3)], "the host has the others"


def test_what_the_host_holds_is_still_there_when_the_import_fails() -> None:
    node, lender, borrower = pair(host_pages=8, write_policy=WritePolicy.WRITE_THROUGH)
    lender.publish(seq("ABCDEF"))
    borrower.publish(seq("ABC"))
    for plan in borrower.cache.take_plans():
        borrower.cache.finish_copy(plan.copy_id)
    borrower.cache.evict(2)
    got = ask(borrower, "ABCDEFG")
    node.end(borrower.cache.take_imports()[0], borrower, "the link is down")
    assert match(borrower, "ABCDEF")[:2] == (PAGE, 2 * PAGE)
    (arrival,) = borrower.cache.take_arrivals(borrower.id)
    assert (arrival.device_tokens, arrival.error) == (PAGE, "the link is down")
    assert [(it.first_page, len(it.pages)) for it in arrival.patches] == [(1, 5)]
    assert borrower.cache.take_plans() == ()
    borrower.release(got.lease_id, publish_to=7 * PAGE)
    node.check()


def test_an_import_that_fails_leaves_pages_to_compute_and_nothing_in_the_tree() -> None:
    node, lender, borrower = pair()
    lender.publish(seq("ABCD"))
    first = ask(borrower, "ABCDE")
    second = ask(borrower, "ABCX")
    assert second.loading == first.loading
    assert second.peer_tokens == 3 * PAGE
    assert borrower.cache.admission.reserved == 3, "should it fail, the second needs pages of its own"
    assert match(borrower, "ABCD").peer_tokens == 4 * PAGE, "those on their way count, whoever asks"
    node.end(borrower.cache.take_imports()[0], borrower, "the link is down")
    assert borrower.cache.tree.nodes == 0
    assert match(borrower, "ABCD")[:2] == (0, 0)
    patches = {it.lease_id: it.patches[0] for it in borrower.cache.take_arrivals(borrower.id)}
    assert [len(patches[it.lease_id].pages) for it in (first, second)] == [4, 3]
    assert not np.intersect1d(patches[first.lease_id].pages, patches[second.lease_id].pages).size
    assert borrower.cache.counters.import_failed_pages == 4
    borrower.release(first.lease_id, publish_to=5 * PAGE)
    assert borrower.cached(seq("ABCDE")) == 5 * PAGE
    node.check()


def test_a_lease_that_has_ended_holds_nothing_that_has_not_arrived() -> None:
    """Its lock waits for a step; a failed import must not leave it on nodes that are nothing but their tokens."""
    node, lender, borrower = pair()
    lender.publish(seq("ABCD"))
    borrower.launch()
    borrower.release(ask(borrower, "ABCDE").lease_id)
    node.end(borrower.cache.take_imports()[0], borrower, "the link is down")
    assert (borrower.cache.tree.nodes, match(borrower, "ABCD")[:2]) == (0, (0, 0))
    borrower.finish()
    assert borrower.cache.occupancy().free == 16
    node.check()


@pytest.mark.parametrize("error", ["", "the link is down"])
def test_an_import_ends_well_without_anybody_left_to_wait(error: str) -> None:
    node, lender, borrower = pair()
    lender.publish(seq("ABCD"))
    ask(borrower, "ABCDE")
    borrower.cache.end_session(borrower.id, proved_gone=True)
    node.check()
    (plan,) = borrower.cache.take_imports()
    node.end(plan, borrower, error)
    ledger = borrower.cache.occupancy()
    assert (ledger.evictable, ledger.free) == ((0, 16) if error else (4, 12))
    assert lender.cache.occupancy().evictable == 4


@pytest.mark.parametrize("error", ["", "the link is down"])
def test_flushes_on_both_sides_change_nothing_for_who_waits(error: str) -> None:
    node, lender, borrower = pair()
    lender.publish(seq("ABCD"))
    got = ask(borrower, "ABCDE")
    (plan,) = borrower.cache.take_imports()
    for pool in node:
        pool.cache.flush()
    assert lender.cache.occupancy().free == 12, "lent pages stay until the copy has ended"
    node.end(plan, borrower, error)
    assert lender.cache.occupancy().free == 16
    (arrival,) = borrower.cache.take_arrivals(borrower.id)
    assert arrival.device_tokens == (0 if error else 4 * PAGE)
    borrower.release(got.lease_id)
    borrower.batch()
    assert borrower.cache.occupancy().free == 16
    node.check()


def test_lent_pages_cannot_be_evicted_and_others_can() -> None:
    node, lender, borrower = pair()
    lender.publish(seq("ABCDEF"))
    lender.publish(seq("XY"))
    ask(borrower, "ABCD", max_tokens=4 * PAGE)
    assert lender.cache.evict(16) == 4
    (plan,) = borrower.cache.take_imports()
    node.end(plan, borrower)
    assert lender.cache.evict(16) == 4


def test_a_loan_never_breaks_a_reservation_of_the_lender() -> None:
    node, lender, borrower = pair(pages=8)
    lender.publish(seq("ABCD"))
    held = lender.acquire(seq("X"), reserve_to=6 * PAGE)
    assert match(borrower, "ABCD").peer_tokens == 0
    assert ask(borrower, "ABCDE").loading == ()
    lender.release(held.lease_id)
    lender.batch()
    assert match(borrower, "ABCD").peer_tokens == 4 * PAGE
    node.check()


def test_an_import_is_never_the_reason_for_a_refusal() -> None:
    node = Node(config(16), config(4))
    lender, borrower = node
    lender.publish(seq("ABCDE"))
    assert borrower.acquire(seq("ABCDE"), allocate_to=PAGE).pages.size == 1
    got = ask(borrower, "ABCDEF", allocate_to=PAGE)
    assert (got.device_tokens, got.pages.size, got.loading) == (0, 1, ())
    with pytest.raises(Refusal) as refused:
        ask(borrower, "ABCDEF")
    assert refused.value.reason is Reason.NEVER_FITS
    node.check()


def test_the_longest_prefix_wins_and_of_equal_ones_the_idlest_pool() -> None:
    node = Node(*(config() for _ in range(5)))
    one, two, three, borrower, other = node
    one.publish(seq("ABC"))
    two.publish(seq("ABCD"))
    three.publish(seq("ABCD"))
    assert match(borrower, "ABCDE").peer == "gpu1"
    ask(other, "ABCDE")
    assert match(borrower, "ABCDE").peer == "gpu2"
    node.stopped.add("gpu2")
    assert match(borrower, "ABCDE").peer == "gpu1"
    node.stopped.add("gpu1")
    assert (match(borrower, "ABCDE").peer, match(borrower, "ABCDE").peer_tokens) == ("gpu0", 3 * PAGE)


def test_being_lent_is_no_use_and_asking_changes_nothing() -> None:
    node, lender, borrower = pair()
    lender.publish(seq("ABCD"))
    lender.publish(seq("XYZ"))
    node_of = {len(it.pages): it for it in lender.cache.tree}
    before = (node_of[4].hits, node_of[4].last_use)
    match(borrower, "ABCDE")
    got = ask(borrower, "ABCDE")
    node.end(borrower.cache.take_imports()[0], borrower)
    borrower.release(got.lease_id)
    assert (node_of[4].hits, node_of[4].last_use) == before
    lender.cache.evict(1)
    assert lender.cached(seq("ABCD")) == 3 * PAGE, "the older one goes first"


def test_namespaces_of_two_pools_meet_only_where_they_are_equal() -> None:
    _, lender, borrower = pair()
    lender.publish(seq("ABCD"))
    for other in (Namespace(b"model-2"), Namespace(b"model-1", cache_salt=b"salt"), Namespace(b"model-1", b"lora")):
        assert borrower.cache.match(borrower.id, other, seq("ABCDE"), peers=True).peer_tokens == 0


def test_nothing_is_imported_behind_what_is_arriving() -> None:
    node, lender, borrower = pair()
    lender.publish(seq("ABC"))
    ask(borrower, "ABCD")
    lender.publish(seq("ABCDEFG"))
    got = ask(borrower, "ABCDEFG")
    assert (got.device_tokens, got.peer_tokens, len(borrower.cache.take_imports())) == (3 * PAGE, 3 * PAGE, 1)
    node.check()


def test_what_is_still_arriving_is_not_lent_on() -> None:
    node = Node(config(), config(), config())
    lender, between, borrower = node
    lender.publish(seq("ABCD"))
    ask(between, "ABCDE")
    node.stopped.add("gpu0")
    assert match(borrower, "ABCD").peer_tokens == 0
    node.end(between.cache.take_imports()[0], between)
    assert match(borrower, "ABCD")[4:] == (4 * PAGE, "gpu1")


def test_imported_pages_have_the_priority_of_the_lease_that_asked() -> None:
    node, lender, borrower = pair()
    lender.publish(seq("ABCD"))
    got = borrower.acquire(seq("ABCDE"), priority=70, import_from_peers=True)
    node.end(borrower.cache.take_imports()[0], borrower)
    borrower.release(got.lease_id)
    borrower.publish(seq("XY"))
    borrower.cache.evict(2)
    assert (borrower.cached(seq("ABCD")), borrower.cached(seq("XY"))) == (4 * PAGE, 0)


@pytest.mark.parametrize("policy", [WritePolicy.WRITE_THROUGH, WritePolicy.WRITE_THROUGH_SELECTIVE])
def test_what_has_arrived_is_saved_as_if_it_had_been_computed(policy: WritePolicy) -> None:
    node, lender, borrower = pair(host_pages=8, write_policy=policy)
    lender.publish(seq("ABCD"))
    ask(borrower, "ABCDE")
    if policy is WritePolicy.WRITE_THROUGH_SELECTIVE:
        ask(borrower, "ABCDF")
    assert borrower.cache.take_plans() == ()
    node.end(borrower.cache.take_imports()[0], borrower)
    assert [(it.kind, len(it.device_pages)) for it in borrower.cache.take_plans()] == [(CopyKind.DEMOTE, 4)]


@pytest.mark.parametrize(
    ("mode", "letters", "tokens"),
    [
        (Speculative.NONE, "ABCDE", 4),
        (Speculative.BIGRAM, "ABCDE", 3),  # the last page's last pair ends in a token that was never published
        (Speculative.DROP_LAST_PAGE, "ABCDE", 3),
    ],
)
def test_an_import_is_as_long_as_a_hit_in_the_lenders_pool_would_be(
    mode: Speculative, letters: str, tokens: int
) -> None:
    node, lender, borrower = pair(speculative=mode)
    lender.publish(seq("ABCD"))
    here = lender.cache.match(lender.id, lender.namespace, seq(letters))
    there = borrower.cache.match(borrower.id, borrower.namespace, seq(letters), peers=True)
    assert (here.device_tokens, there.peer_tokens) == (tokens * PAGE, tokens * PAGE)
    assert here.rollback_tokens == there.rollback_tokens
    got = ask(borrower, letters)
    assert (got.device_tokens, got.rollback_tokens) == (tokens * PAGE, here.rollback_tokens)
    node.end(borrower.cache.take_imports()[0], borrower)
    borrower.release(got.lease_id)
    node.check()
