"""The only way to change a pool: every verb of the contract, atomic, on plain data."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count

from radixd.server.cache.admission import Admission
from radixd.server.cache.checks import (
    check_active,
    check_after_step,
    check_giving_up,
    check_length,
    check_limit,
    check_no_copies,
    check_no_steps,
    check_waiting,
    pages_for,
)
from radixd.server.cache.config import CacheConfig
from radixd.server.cache.counters import Counters
from radixd.server.cache.ending import Endings
from radixd.server.cache.lease import Lease
from radixd.server.cache.ledger import Ledger, Owner
from radixd.server.cache.moves import Moves
from radixd.server.cache.namespace import Namespace
from radixd.server.cache.page_table import PageTable
from radixd.server.cache.publication import Publisher
from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.cache.results import (
    NO_PAGES,
    AcquireResult,
    AllocateResult,
    FinishedCopy,
    FlushResult,
    FreeResult,
    InsertResult,
    MatchResult,
    MovePlan,
    Occupancy,
    PageIds,
    Publication,
    ReleaseResult,
    TablePatch,
)
from radixd.server.cache.session import Dedup, Session, Superseded
from radixd.server.cache.step import StepMark
from radixd.server.cache.tokens import TokenBuffer, count_tokens
from radixd.server.cache.tree import RadixTree, Walk

__all__ = ["CacheConfig", "PrefixCache"]


class PrefixCache:
    """One pool's tree, ledger and leases. One thread owns it; each method either does all it says or raises Refusal.

    Tokens are little-endian uint32 bytes. Lengths are in tokens. `clock` gives seconds and never goes back.
    """

    def __init__(self, config: CacheConfig, clock: Callable[[], float] = time.monotonic):
        self.config = config
        self.generation = 1
        self.counters = Counters()
        self.ledger = Ledger(config.pages)
        self.tree = RadixTree(config.page_size * config.speculative.element_bytes, config.policy)
        self.admission = Admission(self.ledger, self.tree)
        self.endings = Endings(self.tree, self.ledger, self.admission, config.page_size)
        self.sessions: dict[int, Session] = {}
        self._publisher = Publisher(self.tree, self.ledger, self.admission, config.page_size, config.speculative)
        self._moves = Moves(config.page_size, config.max_move_pairs)
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
        taken = tuple(session.publications)
        session.publications.clear()
        session.carry_patches()
        return taken

    def take_finished_copies(self, session_id: int) -> tuple[FinishedCopy, ...]:
        session = self.session(session_id)
        taken = tuple(session.finished_copies)
        session.finished_copies.clear()
        return taken

    def bar_writers(self, session_id: int) -> None:
        """A process of the session has died, perhaps in mid-write: pages not yet published never will be."""
        session = self.session(session_id)
        for lease in (*session.leases.values(), *session.closing):
            if lease.active and lease.table.length * self.config.page_size > lease.published:
                lease.barred = True
                lease.pending = lease.published

    def end_session(self, session_id: int, *, proved_gone: bool) -> int:
        """Ends a session at once and for good. Returns pages left retired until prove_gone."""
        session = self.session(session_id)
        del self.sessions[session_id]
        return self.endings.end_session(session, proved_gone)

    def prove_gone(self, session_id: int) -> int:
        """Every process of an ended session is gone. Returns pages that went free."""
        return self.endings.prove_gone(session_id)

    # --- matching

    def match(
        self, session_id: int, namespace: Namespace, tokens: bytes, *, max_tokens: int | None = None, peek: bool = False
    ) -> MatchResult:
        self.session(session_id)
        return self._match(namespace, tokens, self._known(tokens), max_tokens, peek)

    def match_lease(
        self, session_id: int, lease_id: int, *, max_tokens: int | None = None, peek: bool = False
    ) -> MatchResult:
        lease = self._lease(session_id, lease_id)
        known = len(lease.tokens)
        return self._match(lease.namespace, lease.tokens.read(0, known), known, max_tokens, peek)

    def _match(
        self, namespace: Namespace, tokens: bytes, known: int, max_tokens: int | None, peek: bool
    ) -> MatchResult:
        walk, rollback = self._walk(namespace, tokens, known, max_tokens)
        if walk is None:
            return MatchResult(0, 0, 0)
        if not peek:
            self.tree.touch(walk.partial or walk.node)
        return MatchResult(walk.pages * self.config.page_size, self.tree.unlocked_pages(walk), rollback)

    def _walk(self, namespace: Namespace, tokens: bytes, known: int, max_tokens: int | None) -> tuple[Walk | None, int]:
        """The reusable match, and the tokens that speculation took off it."""
        limit = known - 1 if max_tokens is None else max_tokens
        key = self.config.speculative.key(tokens)
        walk = self.tree.walk(namespace, key, max(0, limit) // self.config.page_size)
        if walk is None:
            return None, 0
        rollback = self.config.speculative.rollback_pages(walk.pages)
        if rollback:
            walk = self.tree.trim(walk, rollback)
        return walk, rollback * self.config.page_size

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
    ) -> AcquireResult:
        """Opens an active lease: match, lock, allocate and reserve, all or nothing."""
        session = self.session(session_id)
        lease = self._new_lease(session, namespace, tokens, priority, retain_seconds)
        result = self._activate(lease, max_tokens, allocate_to, reserve_to)
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
    ) -> AcquireResult:
        """Acquires for a waiting lease."""
        lease = self._lease(session_id, lease_id)
        check_waiting(lease)
        check_limit("leases", self.session(session_id).held_leases, self.config.max_leases)
        return self._activate(lease, max_tokens, allocate_to, reserve_to)

    def _new_lease(
        self, session: Session, namespace: Namespace, tokens: bytes, priority: int, retain_seconds: float | None
    ) -> Lease:
        self._known(tokens)
        check_limit("leases", session.held_leases + 1, self.config.max_leases)
        lease_id = next(self._lease_ids)
        return Lease(lease_id, session.session_id, namespace, TokenBuffer(tokens), priority, retain_seconds)

    def _activate(
        self, lease: Lease, max_tokens: int | None, allocate_to: int | None, reserve_to: int | None
    ) -> AcquireResult:
        known, size = len(lease.tokens), self.config.page_size
        walk, rollback = self._walk(lease.namespace, lease.tokens.read(0, known), known, max_tokens)
        matched = walk.pages if walk else 0
        wanted = max(matched, self._pages_for("allocate_to", known if allocate_to is None else allocate_to))
        reserved = max(0, self._pages_for("reserve_to", reserve_to or 0) - wanted)
        self.admission.check_fits_ever(wanted + reserved, size)
        locked = self.tree.unlocked_pages(walk) if walk else 0
        self.admission.check_acquire(wanted - matched + reserved + locked)

        anchor = self.tree.cut(walk) if walk else self.tree.root(lease.namespace)
        self.tree.lock(anchor)
        self.tree.hit(anchor, self._clock())
        table = PageTable(self.tree.pages_between(None, anchor))
        table.append(self._claim(wanted - matched))
        lease.activate(anchor, table, matched * size, reserved)
        self.admission.admit(lease)
        self.counters.requested_tokens += known
        self.counters.hit_tokens += matched * size
        return AcquireResult(lease.lease_id, matched * size, rollback, table.pages.copy())

    def allocate(self, session_id: int, lease_id: int, allocate_to: int, tokens: bytes = b"") -> AllocateResult:
        """Grows the table to `allocate_to` and appends known tokens."""
        lease = self._active(session_id, lease_id)
        self._known_after(lease, tokens)
        wanted = self._pages_for("allocate_to", allocate_to)
        self.admission.check_fits_ever(wanted, self.config.page_size)
        new = max(0, wanted - lease.table.length)
        self.admission.check_growth(lease, new)

        lease.tokens.append(tokens)
        pages = self._claim(new)
        self.admission.spend(lease, new)
        lease.table.append(pages)
        return AllocateResult(lease.table.length * self.config.page_size, pages)

    def _claim(self, pages: int) -> PageIds:
        if not pages:
            return NO_PAGES
        self.tree.expire(self._clock())
        before = self.tree.evictable
        claimed = self.admission.claim(pages)
        self.counters.evicted_pages += before - self.tree.evictable
        return claimed

    # --- publishing

    def insert(
        self, session_id: int, lease_id: int, written: int, *, after_step: int = 0, tokens: bytes = b""
    ) -> InsertResult:
        """Publishes whole pages up to `written`, once `after_step` has completed."""
        session, lease = self.session(session_id), self._active(session_id, lease_id)
        check_no_copies(lease)
        known, allocated = self._known_after(lease, tokens), lease.table.length * self.config.page_size
        check_length("written", written, known, allocated)
        check_after_step(session, after_step)

        lease.tokens.append(tokens)
        lease.written = max(lease.written, written)
        if after_step <= session.fence.completed:
            patches = self._publish(session, lease, written)
            session.carry_patches()
            return InsertResult(lease.published, False, patches)
        # What is known now decides how far: tokens may be given up and others appended before the step has completed.
        reach = self._publisher.reach(lease, written)
        lease.pending = max(lease.pending, reach)
        session.fence.after(after_step, lambda: self._publish_later(session, lease, reach))
        return InsertResult(lease.published, True, ())

    def _publish(self, session: Session, lease: Lease, written: int) -> tuple[TablePatch, ...]:
        """Publishes now; pages patched out wait until the reply that carries the patch is acknowledged."""
        # No reply will carry a patch to an ended lease: it keeps its duplicates, and gives them up with the rest.
        dedup = Dedup.KEEP if lease.ended else session.dedup
        before = lease.published
        published = self._publisher.publish(lease, written, dedup, self._clock())
        grown = (lease.published - before) // self.config.page_size
        self.counters.inserted_pages += published.adopted
        self.counters.duplicate_pages += grown - published.adopted
        if len(published.replaced):
            session.superseded.append(Superseded(lease, published.replaced))
        return published.patches

    def _publish_later(self, session: Session, lease: Lease, written: int) -> None:
        patches = self._publish(session, lease, written)
        if not lease.ended:
            session.publications.append(Publication(lease.lease_id, lease.published, patches))

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

        lease.tokens.append(tokens)
        if keep:
            session.leases[lease_id] = lease.successor()
        else:
            del session.leases[lease_id]
        if not lease.active:
            return ReleaseResult(0, 0)
        # A retracted lease's id lives on: a patch that comes late would be taken for one to its next table.
        session.publications = [it for it in session.publications if it.lease_id != lease_id]
        superseded = session.take_superseded(lambda it: it.lease is lease)
        self.endings.retire(session, superseded)
        size, inserted = self.config.page_size, self.counters.inserted_pages
        own = lease.table.own_count() + len(superseded)
        first = max(self._publisher.reach(lease, publish_to), lease.pending) // size
        self.endings.end_lease(session, lease, first, after_step, lambda: self._publish(session, lease, publish_to))
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
        check_no_steps(session)
        return self._moves.plan(session, lease, sources, destinations)

    def finish_copy(self, copy_id: int, error: str = "") -> None:
        """The bytes of a plan are in place, or, with an error, will never be."""
        self._moves.finish(copy_id, error)

    # --- operators

    def evict(self, pages: int) -> int:
        """Evicts up to `pages` pages in policy order. Returns how many."""
        self.tick()
        evicted = self.admission.evict(min(pages, self.tree.evictable))
        self.counters.evicted_pages += evicted
        return evicted

    def flush(self) -> FlushResult:
        """Makes everything cached unmatchable; what no lease holds goes free."""
        unlocked = self.tree.detach()
        self.ledger.release(unlocked, Owner.CACHED)
        self.generation += 1
        self.counters.flushed_pages += len(unlocked)
        return FlushResult(self.generation, len(unlocked), self.tree.protected)

    def tick(self) -> None:
        """Drops priorities whose retention is over."""
        self.tree.expire(self._clock())

    def occupancy(self, session_id: int | None = None) -> Occupancy:
        """The ledger now, as one session, or (None) nobody, sees it."""
        retired_mine = reserved_mine = 0
        if session_id in self.sessions:
            retired_mine = self.sessions[session_id].retired_pages
            reserved_mine = self.admission.reserved_by[session_id]
        reserved_others = self.admission.reserved - reserved_mine
        free, evictable = self.ledger.free, self.tree.evictable
        return Occupancy(
            total=self.ledger.total,
            free=free,
            evictable=evictable,
            protected=self.tree.protected,
            leased=self.ledger.leased,
            retired=self.ledger.retired,
            retired_mine=retired_mine,
            in_copy=self._moves.pages_in_copy,
            reserved_mine=reserved_mine,
            reserved_others=reserved_others,
            available=max(0, free + evictable - reserved_others),
            max_fit=self.admission.max_fit,
        )

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
        check_active(lease)
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
