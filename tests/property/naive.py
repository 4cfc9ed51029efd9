"""A pool said as plainly as it can be: whole prefixes in a dict, pages in sets, everything recomputed each time.

It predicts what the cache must answer, but for two choices that it is shown and judges: which free pages are handed
out, and which pages are evicted (only unlocked ones, tail first, in policy order, as many as needed).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from radixd.server.cache.namespace import Namespace
from radixd.server.cache.speculative import Speculative

TOKEN = 4
ARRIVALS = count()
Key = tuple[Namespace, bytes]
"""A published page: its namespace and all tokens up to its end (and the next one, where pairs are keyed)."""


@dataclass
class Bounds:
    """A rank that the contract fixes only up to a range."""

    low: int
    high: int


@dataclass
class Cached:
    """A page in the tree."""

    page: int
    priority: Bounds
    used: Bounds


@dataclass(eq=False)
class NaiveLease:
    """A request. `locked` are the tree's pages for the published prefix, `own` its private ones."""

    lease_id: int
    session: int
    namespace: Namespace
    tokens: bytes
    priority: int
    retained: bool
    active: bool = False
    barred: bool = False
    table: list[int] = field(default_factory=list)
    locked: list[int] = field(default_factory=list)
    own: set[int] = field(default_factory=set)
    replaced: list[tuple[int | None, set[int]]] = field(default_factory=list)  # by patches: reply's seq, pages
    written: int = 0
    pending: int = 0  # pages that waiting Inserts will have published
    reserved: int = 0

    @property
    def known(self) -> int:
        return len(self.tokens) // TOKEN


@dataclass(eq=False)
class NaiveSession:
    session_id: int
    patches: bool
    seq: int = 0
    ack: int = 0
    launched: int = 0
    completed: int = 0
    ended: bool = False

    @property
    def in_flight(self) -> bool:
        return self.launched > self.completed


@dataclass(eq=False)
class Pending:
    """An Insert, or the one in a Release, that waits for a step."""

    lease: NaiveLease
    step: int
    pages: int
    arrival: int = field(default_factory=ARRIVALS.__next__)


@dataclass(eq=False)
class Leaving:
    """A lease that is over, whose lock and pages wait for a step and for copies; for copies alone, without a step."""

    lease: NaiveLease
    step: int | None
    proved_gone: bool = False
    arrival: int = field(default_factory=ARRIVALS.__next__)


@dataclass(eq=False)
class Retired:
    """Pages given up: until a step has completed, or, where `step` is None, until the session's processes are gone."""

    session: int
    pages: set[int]
    step: int | None
    arrival: int = field(default_factory=ARRIVALS.__next__)


class NaivePool:
    def __init__(self, pages: int, page_size: int, mode: Speculative, policy: str):
        self.all_pages = set(range(1, pages + 1))
        self.page_size = page_size
        self.mode = mode
        self.policy = policy
        self.tree: dict[Key, Cached] = {}
        self.content: dict[int, object] = {}
        self.sessions: dict[int, NaiveSession] = {}
        self.leases: dict[int, NaiveLease] = {}
        self.waiting_inserts: list[Pending] = []
        self.leaving: list[Leaving] = []
        self.retired: list[Retired] = []
        self.copies: dict[int, NaiveLease] = {}
        self.now = 0
        self.generation = 1
        self.requested = self.hit = self.evicted = self.inserted = 0

    # --- lengths

    def pages_for(self, length: int) -> int:
        return -(-length // self.page_size)

    def keys(self, namespace: Namespace, tokens: bytes, pages: int) -> list[Key]:
        """The keys of the first `pages` pages; fewer, where a page's key is not known in full."""
        lookahead = 1 if self.mode is Speculative.BIGRAM else 0
        ends = [(page * self.page_size + lookahead) * TOKEN for page in range(1, pages + 1)]
        return [(namespace, tokens[:end]) for end in ends if end <= len(tokens)]

    def publishable(self, lease: NaiveLease, written: int) -> int:
        """Pages of `written` tokens that an Insert may publish."""
        lookahead = 1 if self.mode is Speculative.BIGRAM else 0
        return max(0, min(written, lease.known - lookahead)) // self.page_size

    def common(self, namespace: Namespace, tokens: bytes, max_tokens: int | None) -> list[Key]:
        """The longest published prefix, before the mode's rollback."""
        known = len(tokens) // TOKEN
        limit = max(0, known - 1) if max_tokens is None else min(max_tokens, known)
        found = []
        for key in self.keys(namespace, tokens, limit // self.page_size):
            if key not in self.tree:
                break
            found.append(key)
        return found

    def matched(self, namespace: Namespace, tokens: bytes, max_tokens: int | None) -> list[Key]:
        found = self.common(namespace, tokens, max_tokens)
        return found[:-1] if self.mode is Speculative.DROP_LAST_PAGE else found

    # --- owners

    def holders(self) -> Iterator[NaiveLease]:
        yield from self.leases.values()
        for leaving in self.leaving:
            yield leaving.lease

    @property
    def held(self) -> set[int]:
        return {page for lease in self.holders() for page in lease.locked}

    @property
    def cached(self) -> set[int]:
        return {cached.page for cached in self.tree.values()}

    @property
    def evictable(self) -> set[int]:
        return self.cached - self.held

    @property
    def given_up(self) -> set[int]:
        """Pages nobody may be handed: under a step that is not completed, a copy, or without proof."""
        waiting = [retired.pages for retired in self.retired] + [leaving.lease.own for leaving in self.leaving]
        return set().union(*waiting)

    @property
    def leased(self) -> set[int]:
        return set().union(*(lease.own for lease in self.leases.values()))

    @property
    def free(self) -> set[int]:
        return self.all_pages - self.cached - self.held - self.leased - self.given_up

    @property
    def reservations(self) -> int:
        return sum(lease.reserved for lease in self.leases.values())

    @property
    def headroom(self) -> int:
        """A page for each active lease that has no reservation left, so that it can grow."""
        return sum(lease.active and not lease.reserved for lease in self.leases.values())

    @property
    def max_fit(self) -> int:
        """The most pages that an Acquire can cost."""
        return max(0, len(self.free) + len(self.evictable) - self.reservations - self.headroom)

    def busy(self, lease: NaiveLease) -> bool:
        return lease in self.copies.values()

    def check(self) -> None:
        """No page has two owners."""
        owners: list[Iterable[int]] = [lease.own for lease in self.holders()]
        owners += [retired.pages for retired in self.retired]
        owners += [self.cached | self.held]
        pages = [page for owned in owners for page in owned]
        assert len(pages) == len(set(pages)), "a page has two owners"
        assert len(self.cached) == len(self.tree), "a page stands at two places of the tree"

    # --- what the cache was seen to do

    def observe_evictions(self, tree: Mapping[Key, int], needed: int) -> None:
        """Takes the pages that have gone; exactly `needed`, and none that had to stay."""
        gone = {key for key in self.tree if key not in tree}
        assert len(gone) == needed, f"{len(gone)} pages were evicted where {needed} had to be"
        held = self.held
        left = dict(self.tree)
        while gone:
            parents = {(key[0], self._parent(key)) for key in left}
            leaves = {key for key, cached in left.items() if key not in parents and cached.page not in held}
            victims = gone & leaves
            assert victims, "a locked page, or one with cached pages behind it, was evicted"
            victim = min(victims, key=lambda key: self._rank(left[key])[0])
            for other in leaves - gone:
                assert not self._rank(left[other])[1] < self._rank(left[victim])[0], "evicted out of policy order"
            gone.discard(victim)
            del left[victim]
        self.tree = left
        self.evicted += needed

    def _parent(self, key: Key) -> bytes:
        return key[1][: -self.page_size * TOKEN]

    def _rank(self, cached: Cached) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The least and the most that a page's rank can be; equal for all under policies that are not modelled."""
        priority, used = cached.priority, cached.used
        if self.policy == "priority":
            return (priority.low, used.low), (priority.high, used.high)
        if self.policy == "lru":
            return (used.low,), (used.high,)
        return (), ()

    def assert_tree(self, tree: Mapping[Key, int]) -> None:
        """The cache holds just the published prefixes, each in its page."""
        expected = {key: cached.page for key, cached in self.tree.items()}
        extra = {tree[key] for key in tree if expected.get(key) != tree[key]}
        missing = {expected[key] for key in expected if expected[key] != tree.get(key)}
        assert (extra, missing) == (set(), set()), "the tree holds other pages than were published"

    def touch(self, keys: list[Key]) -> None:
        """These pages were used; those behind them may share a node with them."""
        self.now += 1
        for key in keys:
            self.tree[key].used = Bounds(self.now, self.now)
        if keys:
            namespace, tokens = keys[-1]
            lookahead = TOKEN if self.mode is Speculative.BIGRAM else 0
            prefix = tokens[: len(tokens) - lookahead]
            for (other, behind), cached in self.tree.items():
                if other == namespace and behind.startswith(prefix):
                    cached.used.high = self.now

    def _maybe_touch(self, lease: NaiveLease) -> None:
        """An unlock may refresh recency."""
        self.now += 1
        for cached in self.tree.values():
            if cached.page in lease.locked:
                cached.used.high = self.now

    # --- verbs

    def can_acquire(self, pages: int, locked: list[Key]) -> bool:
        """Whether `pages`, new and reserved, can be promised together with a lock on `locked`."""
        cost = pages + len({self.tree[key].page for key in locked} - self.held)
        return cost <= self.max_fit

    def can_grow(self, lease: NaiveLease, pages: int) -> bool:
        """Whether an active lease can have `pages` more: its own reservation first."""
        extra = pages - lease.reserved
        return extra <= 0 or extra <= len(self.free) + len(self.evictable) - self.reservations

    def activate(self, lease: NaiveLease, matched: list[Key], reserve: int) -> None:
        """Locks the match. The pages follow with `grant`."""
        lease.active = True
        lease.barred = False
        lease.locked = [self.tree[key].page for key in matched]
        lease.table = list(lease.locked)
        lease.own = set()
        lease.written = len(matched) * self.page_size
        lease.pending = len(matched)
        lease.reserved = reserve
        for key, page in zip(matched, lease.locked, strict=True):
            assert self.content[page] == key, f"page {page} does not hold what its prefix says"
        self.touch(matched)

    def grant(self, lease: NaiveLease, pages: list[int]) -> None:
        """Hands out new pages, after evictions were observed."""
        assert len(pages) == len(set(pages))
        assert set(pages) <= self.free, f"{set(pages) - self.free} were handed out but are not free"
        lease.own |= set(pages)
        lease.table += pages
        for page in pages:
            self.content[page] = lease

    def insert(self, lease: NaiveLease, written: int, step: int) -> bool:
        """Notes an Insert; returns whether it waits for its step. If not, `publish` follows."""
        lease.written = max(lease.written, written)
        if step <= self.sessions[lease.session].completed and not self.busy(lease):
            return False
        if self.busy(lease):  # released under a copy: it publishes when it closes
            step = self.sessions[lease.session].launched
        target = self.publishable(lease, written)
        if not lease.barred:
            lease.pending = max(lease.pending, target)
        self.waiting_inserts.append(Pending(lease, step, target))
        return True

    def publish(self, lease: NaiveLease, target: int) -> None:
        """Publishes up to `target` pages.

        Pages met in the tree are locked, and replace the lease's own in a session that takes patches. Where that would
        lock pages that others count on, nothing is published.
        """
        before = len(lease.locked)
        keys = self.keys(lease.namespace, lease.tokens, target)
        met = {self.tree[key].page for key in keys[before:] if key in self.tree} - self.held
        spare = len(self.free) + len(self.evictable) - self.reservations
        if lease.barred or len(keys) <= before or (met and len(met) > spare):
            return
        session = self.sessions[lease.session]
        patches = session.patches and lease.lease_id in self.leases and self.leases[lease.lease_id] is lease
        for index in range(before, len(keys)):
            self._publish_page(lease, keys[index], index, patches=patches)
        for key in keys:
            priority = self.tree[key].priority
            priority.high = max(priority.high, lease.priority)
            priority.low = 0 if lease.retained else max(priority.low, lease.priority)
        self.touch(keys)
        lease.pending = max(lease.pending, len(lease.locked))

    def _publish_page(self, lease: NaiveLease, key: Key, index: int, *, patches: bool) -> None:
        page = lease.table[index]
        if key not in self.tree:
            assert page in lease.own, f"page {page} was published but is not its lease's own"
            assert self.content[page] is lease, f"page {page} was published but its lease did not write it last"
            priority = 0 if lease.retained else lease.priority
            self.tree[key] = Cached(page, Bounds(priority, lease.priority), Bounds(self.now, self.now))
            self.content[page] = key
            lease.own.discard(page)
            lease.locked.append(page)
            self.inserted += 1
            return
        canonical = self.tree[key].page
        lease.locked.append(canonical)
        if patches:
            lease.table[index] = canonical
            if lease.replaced and lease.replaced[-1][0] is None:
                lease.replaced[-1][1].add(page)
            else:
                lease.replaced.append((None, {page}))

    def reply(self, lease: NaiveLease, seq: int) -> None:
        """The patches of a lease so far stand in the reply `seq`."""
        lease.replaced = [(seq if said is None else said, pages) for said, pages in lease.replaced]

    def free_tail(self, lease: NaiveLease, from_length: int) -> int:
        kept = self.pages_for(from_length)
        dropped = set(lease.table[kept:])
        assert dropped <= lease.own
        del lease.table[kept:]
        lease.own -= dropped
        lease.tokens = lease.tokens[: from_length * TOKEN]
        lease.written = min(lease.written, from_length)
        self._retire(lease.session, dropped)
        return len(dropped)

    def _retire(self, session_id: int, pages: set[int]) -> None:
        session = self.sessions[session_id]
        if pages and session.in_flight:
            self.retired.append(Retired(session_id, pages, session.launched))

    def release(self, lease: NaiveLease, *, keep: bool) -> None:
        """Ends a lease, after its last Insert was noted. What waits goes on; `settle` follows."""
        del self.leases[lease.lease_id]
        if keep:
            self.leases[lease.lease_id] = NaiveLease(
                lease.lease_id, lease.session, lease.namespace, lease.tokens, lease.priority, lease.retained
            )
        if lease.active:
            self._maybe_touch(lease)
            lease.reserved = 0
            for _, pages in lease.replaced:  # no copy touches them: they left the table before it began
                lease.own -= pages
                self._retire(lease.session, pages)
            self.leaving.append(Leaving(lease, self.sessions[lease.session].launched))

    def settle(self, session: NaiveSession) -> Iterator[Pending]:
        """Lets happen what waited for steps and copies that are over, by step, then by arrival.

        Yields each Insert among it, to be published before the next.
        """
        while due := [event for event in self._events() if self._is_due(event, session)]:
            event = min(due, key=lambda it: (it.step or 0, it.arrival))
            if isinstance(event, Pending):
                self.waiting_inserts.remove(event)
                yield event
            elif isinstance(event, Retired):
                self.retired.remove(event)
            else:
                self._maybe_touch(event.lease)
                self.leaving.remove(event)
                if event.step is None and event.lease.own and not event.proved_gone:
                    self.retired.append(Retired(session.session_id, event.lease.own, None))

    def _events(self) -> list[Pending | Leaving | Retired]:
        return [*self.waiting_inserts, *self.leaving, *self.retired]

    def _is_due(self, event: Pending | Leaving | Retired, session: NaiveSession) -> bool:
        if isinstance(event, Retired):
            return event.session == session.session_id and event.step is not None and event.step <= session.completed
        if event.lease.session != session.session_id or self.busy(event.lease):
            return False
        publishes = any(insert.lease is event.lease for insert in self.waiting_inserts)
        if isinstance(event, Leaving) and publishes:
            return False
        return event.step is None or event.step <= session.completed

    def acknowledge(self, session: NaiveSession, ack: int) -> None:
        """The client has applied the patches up to the reply `ack`: what they replaced is given up."""
        session.ack = ack
        for lease in self.leases.values():
            for said, pages in list(lease.replaced):
                if lease.session == session.session_id and said is not None and said <= ack:
                    lease.replaced.remove((said, pages))
                    lease.own -= pages
                    self._retire(lease.session, pages)

    def end_session(self, session: NaiveSession, *, proved_gone: bool) -> int:
        """Locks return at once; private pages stay given up until proof. Returns how many."""
        session.ended = True
        mine = session.session_id
        self.waiting_inserts = [insert for insert in self.waiting_inserts if insert.lease.session != mine]
        lost = [lease for lease in self.holders() if lease.session == mine]
        left = set().union(*(retired.pages for retired in self.retired if retired.session == mine))
        self.leases = {lease_id: lease for lease_id, lease in self.leases.items() if lease.session != mine}
        self.leaving = [leaving for leaving in self.leaving if leaving.lease.session != mine]
        self.retired = [retired for retired in self.retired if retired.session != mine]
        for lease in lost:
            self._maybe_touch(lease)
            lease.reserved = 0
            if self.busy(lease):
                self.leaving.append(Leaving(lease, None))
            else:
                left |= lease.own
        if left:
            self.retired.append(Retired(mine, left, None))
        if proved_gone:
            self.prove_gone(session)
        return sum(len(retired.pages) for retired in self.retired if retired.session == mine) + sum(
            len(leaving.lease.own) for leaving in self.leaving if leaving.lease.session == mine
        )

    def prove_gone(self, session: NaiveSession) -> int:
        """Frees what an ended session left, but for what a copy may touch; returns how many pages."""
        freed = [retired for retired in self.retired if retired.session == session.session_id]
        self.retired = [retired for retired in self.retired if retired not in freed]
        for leaving in self.leaving:
            if leaving.lease.session == session.session_id:
                leaving.proved_gone = True
        return sum(len(retired.pages) for retired in freed)

    def finish_copy(self, copy_id: int, *, failed: bool) -> NaiveLease:
        """A copy is over; what it leaves behind in a lease that is over is published only if it succeeded."""
        lease = self.copies.pop(copy_id)
        if failed and any(leaving.lease is lease for leaving in self.leaving):
            lease.barred = True
        return lease

    def bar(self, session_id: int) -> None:
        """No page of these leases that is not published yet ever will be."""
        for lease in self.holders():
            if lease.session == session_id and lease.active and len(lease.table) > len(lease.locked):
                lease.barred = True
                lease.pending = len(lease.locked)

    def flush(self) -> int:
        """Nothing cached is matchable any more. Returns how many pages went free."""
        freed = len(self.evictable)
        self.tree = {}
        self.generation += 1
        for lease in self.holders():
            lease.barred = lease.barred or lease.active
        return freed
