"""The only way to change a pool: every verb of the contract, atomic, on plain data."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from itertools import count
from typing import TypeVar

from radixd.server.cache.acquisition import Acquisition
from radixd.server.cache.admission import Admission
from radixd.server.cache.adoption import adopt
from radixd.server.cache.checks import (
    check_after_step,
    check_arrived,
    check_giving_up,
    check_length,
    check_limit,
    check_no_copies,
    check_no_steps,
    check_state,
    pages_for,
)
from radixd.server.cache.config import CacheConfig
from radixd.server.cache.copies import Copies
from radixd.server.cache.counters import Counters
from radixd.server.cache.demotion import Demoter
from radixd.server.cache.ending import Endings
from radixd.server.cache.host_log import Kept, Lost
from radixd.server.cache.host_space import HostSpace
from radixd.server.cache.importing import Importer
from radixd.server.cache.insertion import Insertion
from radixd.server.cache.lease import Lease, LeaseState
from radixd.server.cache.lending import Lender
from radixd.server.cache.loading import Loads
from radixd.server.cache.matching import Matcher
from radixd.server.cache.moves import Moves
from radixd.server.cache.namespace import Namespace
from radixd.server.cache.occupancy import device_occupancy, host_occupancy
from radixd.server.cache.preemption import Preemption
from radixd.server.cache.promotion import Promoter
from radixd.server.cache.publication import Publisher
from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.cache.residence import Residence
from radixd.server.cache.results import (
    AcquireResult,
    AllocateResult,
    Arrival,
    CopyPlan,
    FinishedCopy,
    FlushResult,
    FreeResult,
    HostOccupancy,
    ImportPlan,
    InsertResult,
    MatchResult,
    MovePlan,
    Occupancy,
    PageIds,
    Publication,
    ReleaseResult,
    Saved,
)
from radixd.server.cache.session import Dedup, Session
from radixd.server.cache.step import StepMark
from radixd.server.cache.tier import Tier
from radixd.server.cache.tokens import TokenBuffer, count_tokens
from radixd.server.cache.tree import RadixTree

__all__ = ["CacheConfig", "PrefixCache"]


T = TypeVar("T")


class PrefixCache:
    """One pool's tree, ledger and leases. One thread owns it; each method either does all it says or raises Refusal.

    Tokens are little-endian uint32 bytes. Lengths are in tokens. `clock` gives seconds and never goes back.
    """

    def __init__(self, config: CacheConfig, clock: Callable[[], float] = time.monotonic):
        size = config.page_size
        self.config = config
        self.generation = 1
        self.counters = counters = Counters()
        self.sessions: dict[int, Session] = {}
        self.device, self.host = Tier(config.pages, config.policy), Tier(config.host_pages, config.policy)
        self.ledger = self.device.ledger
        self.tree = tree = RadixTree(size * config.speculative.element_bytes, self.device, self.host)
        self.residence = residence = Residence(tree, self.device, self.host)
        self.admission = admission = Admission(self.device, residence)
        self.copies = copies = Copies()
        self.host_space = host = HostSpace(self.host, residence)
        self._demoter = Demoter(config, tree, residence, self.device, host, admission, copies, counters)
        loads = Loads(tree, residence, self.device, admission, self.sessions, size)
        promoter = Promoter(loads, copies, counters)
        self.lender = Lender(tree, residence, admission, copies, counters)
        self.importer = Importer(config, loads, self._demoter, copies, counters)
        self._matcher = Matcher(config, tree, residence, self.importer)
        self._preemption = Preemption(residence, self.ledger, host, admission, copies, counters, self.sessions, size)
        self.endings = Endings(residence, self.ledger, admission, self._preemption, size)
        self._publisher = Publisher(tree, residence, admission, size, config.speculative)
        self._insertion = Insertion(config, self._publisher, self._demoter, counters, clock)
        self._moves = Moves(copies, size, config.max_move_pairs)
        self._acquisition = Acquisition(
            config,
            tree,
            residence,
            self.device,
            admission,
            self._demoter,
            self._matcher,
            loads,
            promoter,
            self.importer,
            self._preemption,
            counters,
            clock,
        )
        self._clock = clock
        self._lease_ids = count(1)

    # --- sessions and steps

    def open_session(self, session_id: int, model: bytes, dedup: Dedup) -> None:
        self.sessions[session_id] = Session(session_id, model, dedup)

    def session(self, session_id: int) -> Session:
        session = self.sessions.get(session_id)
        if session is None:
            raise Refusal(Reason.NO_SESSION, f"session {session_id} is over or was never opened; open a new one")
        return session

    def advance(self, session_id: int, mark: StepMark) -> None:
        """Begins a Batch: what waited for the steps that have completed since happens now."""
        session = self.session(session_id)
        session.fence.check(mark.launched, mark.completed)
        if mark.ack >= mark.seq:
            message = f"ack: {mark.ack} must be below seq {mark.seq}; no such reply has been sent"
            raise Refusal(Reason.BAD_FIELD, message, field="ack")
        session.seq = mark.seq
        session.fence.advance(mark.launched, mark.completed)
        acknowledged = session.take_superseded(lambda it: it.reply is not None and it.reply <= mark.ack)
        self.endings.retire(session, acknowledged)

    def complete(self, session_id: int, completed: int) -> None:
        """Takes an idle session's word on the steps it has seen finished."""
        session = self.session(session_id)
        session.fence.check(session.fence.launched, completed)
        session.fence.advance(session.fence.launched, completed)

    def take_publications(self, session_id: int) -> tuple[Publication, ...]:
        """What has been published for waiting Inserts since the last call, for the reply to the Batch at hand."""
        session = self.session(session_id)
        session.carry_patches()
        return _take(session.publications)

    def take_finished_copies(self, session_id: int) -> tuple[FinishedCopy, ...]:
        return _take(self.session(session_id).finished_copies)

    def take_arrivals(self, session_id: int) -> tuple[Arrival, ...]:
        """Copies that leases waited for, ended since the last call."""
        return _take(self.session(session_id).arrivals)

    def take_saved(self, session_id: int) -> tuple[Saved, ...]:
        """Offloads ended since the last call."""
        return _take(self.session(session_id).saved)

    def bar_writers(self, session_id: int) -> int:
        """A process of the session has died, perhaps in mid-write: pages not yet published never will be.

        Returns how many leases have such pages.
        """
        return self.session(session_id).bar_writers(self.config.page_size)

    def end_session(self, session_id: int, *, proved_gone: bool) -> int:
        """Ends a session at once and for good. Returns pages left retired until prove_gone."""
        session = self.session(session_id)
        del self.sessions[session_id]
        for lease in session.leases.values():
            self._count_end(lease)
        return self.endings.end_session(session, proved_gone)

    def prove_gone(self, session_id: int) -> int:
        """Every process of an ended session is gone. Returns pages that went free."""
        return self.endings.prove_gone(session_id)

    # --- matching

    def match(
        self,
        session_id: int,
        namespace: Namespace,
        tokens: bytes,
        *,
        max_tokens: int | None = None,
        peek: bool = False,
        peers: bool = False,
    ) -> MatchResult:
        self.session(session_id)
        query = self._matcher.query(namespace, tokens, self._known(tokens), max_tokens)
        return self._matcher.measure(query, peek=peek, peers=peers)

    def match_lease(
        self,
        session_id: int,
        lease_id: int,
        *,
        max_tokens: int | None = None,
        peek: bool = False,
        peers: bool = False,
    ) -> MatchResult:
        lease = self._lease(session_id, lease_id)
        known = len(lease.tokens)
        query = self._matcher.query(lease.namespace, lease.tokens.read(0, known), known, max_tokens)
        return self._matcher.measure(query, peek=peek, peers=peers)

    # --- opening and growing

    def wait(
        self,
        session_id: int,
        namespace: Namespace,
        tokens: bytes,
        *,
        priority: int = 50,
        retain_seconds: float | None = None,
    ) -> int:
        """Opens a waiting lease and returns its id."""
        session = self.session(session_id)
        lease = self._new_lease(session, namespace, tokens, priority, retain_seconds)
        session.leases[lease.lease_id] = lease
        return lease.lease_id

    def acquire(
        self,
        session_id: int,
        namespace: Namespace,
        tokens: bytes,
        *,
        max_tokens: int | None = None,
        allocate_to: int | None = None,
        reserve_to: int | None = None,
        priority: int = 50,
        retain_seconds: float | None = None,
        import_from_peers: bool = False,
    ) -> AcquireResult:
        """Opens an active lease: match, lock, allocate and reserve, all or nothing."""
        session = self.session(session_id)
        lease = self._new_lease(session, namespace, tokens, priority, retain_seconds)
        result = self._acquisition.activate(
            lease, max_tokens, allocate_to, reserve_to, import_from_peers=import_from_peers
        )
        session.leases[lease.lease_id] = lease
        return result

    def activate(
        self,
        session_id: int,
        lease_id: int,
        *,
        max_tokens: int | None = None,
        allocate_to: int | None = None,
        reserve_to: int | None = None,
        import_from_peers: bool = False,
    ) -> AcquireResult:
        """Acquires for a waiting lease."""
        lease = self._lease(session_id, lease_id)
        check_state(lease, LeaseState.WAITING)
        check_limit("leases", self.session(session_id).held_leases, self.config.max_leases)
        return self._acquisition.activate(
            lease, max_tokens, allocate_to, reserve_to, import_from_peers=import_from_peers
        )

    def _new_lease(
        self, session: Session, namespace: Namespace, tokens: bytes, priority: int, retain_seconds: float | None
    ) -> Lease:
        self._known(tokens)
        check_limit("leases", session.held_leases + 1, self.config.max_leases)
        lease_id = next(self._lease_ids)
        return Lease(lease_id, session.session_id, namespace, TokenBuffer(tokens), priority, retain_seconds)

    def allocate(self, session_id: int, lease_id: int, allocate_to: int, tokens: bytes = b"") -> AllocateResult:
        """Grows the table to `allocate_to` and appends known tokens."""
        lease = self._active(session_id, lease_id)
        self._known_after(lease, tokens)
        wanted = self._pages_for("allocate_to", allocate_to)
        self.admission.check_fits_ever(wanted, self.config.page_size)
        new = max(0, wanted - lease.table.length)
        self.admission.check_growth(lease, new)

        lease.tokens.append(tokens)
        pages = self._acquisition.claim(new)
        self.admission.spend(lease, new)
        lease.table.append(pages)
        return AllocateResult(lease.table.length * self.config.page_size, pages)

    # --- publishing

    def insert(
        self, session_id: int, lease_id: int, written: int, *, after_step: int = 0, tokens: bytes = b""
    ) -> InsertResult:
        """Publishes whole pages up to `written`, once `after_step` has completed."""
        session, lease = self.session(session_id), self._active(session_id, lease_id)
        check_no_copies(lease)
        check_arrived(lease)
        known, allocated = self._known_after(lease, tokens), lease.table.length * self.config.page_size
        check_length("written", written, known, allocated)
        check_after_step(session, after_step)

        lease.tokens.append(tokens)
        lease.written = max(lease.written, written)
        return self._insertion.insert(session, lease, written, after_step)

    # --- giving up

    def free(self, session_id: int, lease_id: int, from_length: int) -> FreeResult:
        """Retires the lease's pages above `from_length`."""
        session, lease = self.session(session_id), self._active(session_id, lease_id)
        check_no_copies(lease)
        kept, size = self._pages_for("from_length", from_length), self.config.page_size
        check_giving_up(lease, from_length, kept, size, self.config.speculative.lookahead)
        pages = lease.table.truncate(kept)
        self.endings.retire(session, pages)
        lease.tokens.truncate(min(from_length, len(lease.tokens)))
        lease.written = min(lease.written, from_length)
        return FreeResult(lease.table.length * size, len(pages))

    def release(
        self,
        session_id: int,
        lease_id: int,
        *,
        publish_to: int = 0,
        after_step: int = 0,
        keep: bool = False,
        tokens: bytes = b"",
    ) -> ReleaseResult:
        """Ends a lease, or returns it to waiting: publishes up to `publish_to`, unlocks and retires the rest."""
        session, lease = self.session(session_id), self._lease(session_id, lease_id)
        known, allocated = self._known_after(lease, tokens), lease.table.length * self.config.page_size
        check_length("publish_to", publish_to, known, allocated)
        check_after_step(session, after_step)
        if publish_to > lease.published:
            check_state(lease, LeaseState.ACTIVE)
            check_arrived(lease)

        lease.tokens.append(tokens)
        self._count_end(lease)
        session.untell(lease_id)
        if keep:
            session.leases[lease_id] = lease.successor()
        else:
            del session.leases[lease_id]
        if lease.state is LeaseState.OFFLOADED:
            self._preemption.forget(lease)
        if not lease.active:
            return ReleaseResult(0, 0)
        superseded = session.take_superseded(lambda it: it.lease is lease)
        self.endings.retire(session, superseded)
        size, inserted = self.config.page_size, self.counters.inserted_pages
        own = lease.table.own_count() + len(superseded)
        first = max(self._publisher.reach(lease, publish_to), lease.pending) // size
        self.endings.end_lease(
            session, lease, first, after_step, lambda: self._insertion.publish(session, lease, publish_to)
        )
        if lease in session.closing:
            unpublished = first * size > lease.published
            lease.tokens.shrink(first * size + self.config.speculative.lookahead if unpublished else 0)
        waiting = max(0, min(first, lease.table.length) - lease.published // size)
        return ReleaseResult(lease.published, own - waiting - (self.counters.inserted_pages - inserted))

    # --- moving

    def move(self, session_id: int, lease_id: int, sources: PageIds, destinations: PageIds) -> MovePlan:
        """Plans a copy of slots into the lease's writable pages. finish_copy must follow."""
        session, lease = self.session(session_id), self._active(session_id, lease_id)
        check_no_copies(lease)
        check_arrived(lease)
        check_no_steps(session)
        return self._moves.plan(session, lease, sources, destinations)

    def finish_copy(self, copy_id: int, error: str = "") -> None:
        """The bytes of a plan are in place, or, with an error, will never be."""
        self.copies.finish(copy_id, error)

    # --- the host tier

    def offload(self, session_id: int, lease_id: int) -> int:
        """Preempts a lease: saves it to the host once launched steps have completed. Returns its host pages."""
        session, lease = self.session(session_id), self._active(session_id, lease_id)
        check_no_copies(lease)
        check_arrived(lease)
        return self._preemption.offload(session, lease)

    def restore(
        self, session_id: int, lease_id: int, *, allocate_to: int | None = None, reserve_to: int | None = None
    ) -> AcquireResult:
        """Brings an offloaded lease back, to pages wherever there are some."""
        lease = self._lease(session_id, lease_id)
        check_state(lease, LeaseState.OFFLOADED)
        return self._acquisition.restore(lease, allocate_to, reserve_to)

    def take_plans(self) -> tuple[CopyPlan, ...]:
        """Copies to carry out, in order, after what take_journal gives has been written."""
        self._demoter.make_room()
        return self.copies.take_plans()

    def take_imports(self) -> tuple[ImportPlan, ...]:
        """Copies from peers to carry out."""
        return self.importer.take_plans()

    def save_all(self) -> int:
        """Plans copies to the host of all that it has room for. Returns how many pages; some may be left for later."""
        return self._demoter.save_all() if self.config.host_pages else 0

    def keep_journal(self) -> None:
        """From now on take_journal tells what of the host tier could be adopted again."""
        self.residence.log = []

    def take_journal(self) -> tuple[Kept | Lost, ...]:
        """What the host tier has come to hold, or holds no longer, since the last call."""
        return _take(self.residence.log) if self.residence.log is not None else ()

    def adopt(self, paths: Iterable[tuple[Namespace, bytes, PageIds]]) -> int:
        """Fills the tree of a fresh cache with host pages of an earlier life. Returns how many pages it took.

        A path is a namespace, the key elements from the root on, and the host page of each of their pages. Where two
        paths share a prefix, the first one's pages count.
        """
        return adopt(self.tree, self.residence, self.host, paths)

    # --- operators

    def evict(self, pages: int) -> int:
        """Evicts up to `pages` pages in policy order. Returns how many."""
        self.tick()
        evicted = self.admission.evict(min(pages, self.device.evictable))
        self.counters.evicted_pages += evicted
        self.counters.operator_evicted_pages += evicted
        return evicted

    def flush(self) -> FlushResult:
        """Makes everything cached unmatchable; what no lease holds goes free."""
        unlocked = self.device.evictable
        self.residence.detach()
        self.generation += 1
        self.counters.flushed_pages += unlocked
        return FlushResult(self.generation, unlocked, self.device.protected)

    def tick(self) -> None:
        """Drops priorities whose retention is over."""
        self.tree.expire(self._clock())

    def occupancy(self, session_id: int | None = None) -> Occupancy:
        """The ledger now, as one session, or (None) nobody, sees it."""
        viewer = None if session_id is None else self.sessions.get(session_id)
        return device_occupancy(self.device, self.admission, self.copies, viewer)

    def host_occupancy(self) -> HostOccupancy:
        """The host tier's ledger now."""
        return host_occupancy(self.host)

    def _count_end(self, lease: Lease) -> None:
        if lease.state is not LeaseState.WAITING:
            self.counters.lease_length.observe(len(lease.tokens))
        if lease.active:
            self.counters.lock_seconds.observe(self._clock() - lease.locked_at)

    # --- checks

    def _lease(self, session_id: int, lease_id: int) -> Lease:
        lease = self.session(session_id).leases.get(lease_id)
        if lease is not None:
            return lease
        if any(lease_id in other.leases for other in self.sessions.values()):
            raise Refusal(Reason.NOT_YOURS, f"lease {lease_id} belongs to another session")
        raise Refusal(Reason.NO_LEASE, f"lease {lease_id} has ended or was never opened")

    def _active(self, session_id: int, lease_id: int) -> Lease:
        lease = self._lease(session_id, lease_id)
        check_state(lease, LeaseState.ACTIVE)
        return lease

    def _known(self, tokens: bytes) -> int:
        known = count_tokens(tokens)
        check_limit("tokens", known, self.config.max_tokens)
        return known

    def _known_after(self, lease: Lease, tokens: bytes) -> int:
        known = len(lease.tokens) + count_tokens(tokens)
        check_limit("tokens", known, self.config.max_tokens)
        return known

    def _pages_for(self, field: str, tokens: int) -> int:
        return pages_for(field, tokens, self.config.page_size)


def _take(items: list[T]) -> tuple[T, ...]:
    taken = tuple(items)
    items.clear()
    return taken
