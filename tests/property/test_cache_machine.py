"""Random schedulers against one cache and, side by side, a model too plain to be wrong."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from radixd.server.cache.invariants import check_invariants
from radixd.server.cache.namespace import Namespace
from radixd.server.cache.policy import POLICIES
from radixd.server.cache.prefix_cache import CacheConfig, PrefixCache
from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.cache.results import InsertResult, TablePatch
from radixd.server.cache.session import Dedup
from radixd.server.cache.speculative import Speculative
from radixd.server.cache.step import StepMark
from tests.property.machines import run_machine
from tests.property.naive import Key, NaiveLease, NaivePool, NaiveSession
from tests.property.observed import fingerprint, read_tree

MODELS = (b"model-1", b"model-2")
SALTS = ((b"", b""), (b"", b""), (b"", b""), (b"", b""), (b"a", b"b"), (b"ab", b""))
# Pages B and C part from A in the last token only, D in the first.
PROMPTS = ["A", "AB", "ABA", "ABAB", "ABABAB", "ABAC", "ABD", "AC", "B", "BA", "D", ""]
EIGHTHS = st.sampled_from(range(9))
SEQUENCES = st.tuples(st.sampled_from(PROMPTS), EIGHTHS)
APPENDED = st.sampled_from([("", 0), ("", 0), ("A", 0), ("B", 0), ("BA", 0), ("C", 3), ("", 5)])
PICK = st.sampled_from(range(16))
LENGTH = st.one_of(st.none(), st.integers(0, 40))


def tokens_of(letters: str, tail: int, page_size: int) -> bytes:
    """Whole pages by letter; `tail` is how many tokens of one more page follow, in eighths of a page."""
    pages = []
    for letter in letters:
        page = np.full(page_size, 7, "<u4")
        if letter == "D":
            page[0] = 9
        else:
            page[-1] = ord(letter)
        pages.append(page)
    pages.append(np.full(tail * page_size // 8, 7, "<u4"))
    return b"".join(page.tobytes() for page in pages)


class CacheMachine(RuleBasedStateMachine):
    """Up to three sessions of two models. Every refusal is predicted, and must change nothing."""

    mode: Speculative
    policy: str

    @initialize(pages=st.sampled_from([8, 11, 16, 24, 40]), page_size=st.sampled_from([4, 4, 4, 64]))
    def make(self, pages: int, page_size: int) -> None:
        self.size = page_size
        self.time = 0.0
        config = CacheConfig(pages=pages, page_size=page_size, policy=self.policy, speculative=self.mode)
        self.cache = PrefixCache(config, clock=lambda: self.time)
        self.pool = NaivePool(pages, page_size, self.mode, self.policy)
        self.live: list[NaiveSession] = []
        self.ended: list[NaiveSession] = []
        self.tables: dict[int, list[int]] = {}  # as clients keep them
        self.published: dict[int, list[tuple[int, int]]] = {}  # publications due, by session
        self.finished: dict[int, list[tuple[int, str]]] = {}
        for number in range(2):
            self._open(number)

    def _open(self, flavour: int) -> None:
        session_id = len(self.live) + len(self.ended) + 1
        patches = bool(flavour % 2)
        self.cache.open_session(session_id, MODELS[flavour // 4 % 2], Dedup.PATCH if patches else Dedup.KEEP)
        self.pool.sessions[session_id] = NaiveSession(session_id, patches)
        self.live.append(self.pool.sessions[session_id])
        self.published[session_id], self.finished[session_id] = [], []
        self._begin_batch(self.live[-1], flavour % 3, 0, 0)  # some are synchronous

    # --- picking

    def _session(self, pick: int) -> NaiveSession:
        return self.live[pick % len(self.live)]

    def _lease(self, pick: int) -> NaiveLease | None:
        leases = [lease for lease in self.pool.leases.values() if not self.pool.sessions[lease.session].ended]
        return leases[pick % len(leases)] if leases else None

    def _active(self, pick: int) -> NaiveLease | None:
        """Mostly an active lease, where there is one."""
        active = [lease for lease in self.pool.leases.values() if lease.active]
        return active[pick % len(active)] if active and pick % 20 else self._lease(pick)

    def _namespace(self, session: NaiveSession, pick: int) -> Namespace:
        return Namespace(self.cache.session(session.session_id).model, *SALTS[pick % len(SALTS)])

    def _tokens(self, sequence: tuple[str, int]) -> bytes:
        return tokens_of(*sequence, self.size)

    def _attempt(self, reasons: set[Reason], call: Callable[[], Any]) -> Any:
        """Makes a call that is refused for one of `reasons` exactly if there are any, and then changes nothing."""
        if not reasons:
            return call()
        self.cache.tick()
        before = fingerprint(self.cache)
        with pytest.raises(Refusal) as refusal:
            call()
        assert refusal.value.reason in reasons
        assert fingerprint(self.cache) == before, f"a refused call ({refusal.value}) changed something"
        return None

    def _append_limits(self, lease: NaiveLease) -> set[Reason]:
        return set() if lease.active else {Reason.NOT_ACTIVE}

    # --- batches

    @rule(pick=PICK, launch=st.sampled_from([1, 1, 1, 0, 2]), complete=st.sampled_from([1, 1, 1, 0, 9]), ack=PICK)
    def batch(self, pick: int, launch: int, complete: int, ack: int) -> None:
        session = self._session(pick)
        self._end_batch(session)
        launched = session.launched + launch
        completed = min(launched, session.completed + complete)
        self._begin_batch(session, launched, completed, min(session.seq, max(session.ack, session.seq - ack // 8)))

    def _end_batch(self, session: NaiveSession) -> None:
        """Takes what goes into the reply to the Batch at hand."""
        publications = self.cache.take_publications(session.session_id)
        assert [(it.lease_id, it.published) for it in publications] == self.published[session.session_id]
        self.published[session.session_id] = []
        for publication in publications:
            self._apply(publication.lease_id, publication.patches)
        for lease in self.pool.leases.values():
            if lease.session == session.session_id:
                self.pool.reply(lease, session.seq)
        copies = self.cache.take_finished_copies(session.session_id)
        assert [(it.copy_id, it.error) for it in copies] == self.finished[session.session_id]
        self.finished[session.session_id] = []

    def _begin_batch(self, session: NaiveSession, launched: int, completed: int, ack: int) -> None:
        seq = session.seq + 1
        self.cache.advance(session.session_id, StepMark(seq, ack, launched, completed))
        session.seq, session.launched, session.completed = seq, launched, completed
        self._settle(session)
        self.pool.acknowledge(session, ack)
        self._settle(session)

    def _settle(self, session: NaiveSession) -> None:
        for insert in self.pool.settle(session):
            lease = insert.lease
            self.pool.publish(lease, insert.pages)
            if self.pool.leases.get(lease.lease_id) is lease:
                self.published[lease.session].append((lease.lease_id, len(lease.locked) * self.size))

    def _apply(self, lease_id: int, patches: tuple[TablePatch, ...]) -> None:
        table = self.tables[lease_id]
        for patch in patches:
            pages = patch.pages.tolist()
            assert patch.first_page + len(pages) <= len(table)
            table[patch.first_page : patch.first_page + len(pages)] = pages

    @rule(pick=PICK, complete=st.integers(1, 2))
    def keep_alive(self, pick: int, complete: int) -> None:
        session = self._session(pick)
        completed = min(session.launched, session.completed + complete)
        self.cache.complete(session.session_id, completed)
        session.completed = completed
        self._settle(session)

    def batch_with_wrong_counts(self, pick: int, fault: int) -> None:
        it = self._session(pick)
        marks = (
            StepMark(it.seq + 1, it.ack, it.launched - 1, min(it.completed, it.launched - 1)),
            StepMark(it.seq + 1, it.ack, it.launched, it.launched + 1),
            StepMark(it.seq + 1, it.ack, it.launched, it.completed - 1),
            StepMark(it.seq + 1, it.seq + 1, it.launched, it.completed),
        )
        self._attempt({Reason.BAD_FIELD}, lambda: self.cache.advance(it.session_id, marks[fault]))

    # --- matching

    @rule(pick=PICK, salt=PICK, sequence=SEQUENCES, max_tokens=LENGTH, peek=st.booleans())
    def match(self, pick: int, salt: int, sequence: tuple[str, int], max_tokens: int | None, peek: bool) -> None:
        session, tokens = self._session(pick), self._tokens(sequence)
        namespace = self._namespace(session, salt)
        before = fingerprint(self.cache) if peek and pick == 0 else None
        result = self.cache.match(session.session_id, namespace, tokens, max_tokens=max_tokens, peek=peek)
        self._check_match(result, namespace, tokens, max_tokens, peek)
        assert before is None or fingerprint(self.cache) == before, "a peek changed something"

    @rule(pick=PICK, max_tokens=LENGTH, peek=st.booleans())
    def match_lease(self, pick: int, max_tokens: int | None, peek: bool) -> None:
        lease = self._lease(pick)
        if lease is not None:
            result = self.cache.match_lease(lease.session, lease.lease_id, max_tokens=max_tokens, peek=peek)
            self._check_match(result, lease.namespace, lease.tokens, max_tokens, peek)

    def _check_match(
        self, result: Any, namespace: Namespace, tokens: bytes, max_tokens: int | None, peek: bool
    ) -> None:
        common = self.pool.common(namespace, tokens, max_tokens)
        matched = self.pool.matched(namespace, tokens, max_tokens)
        assert result.device_tokens == len(matched) * self.size
        assert result.rollback_tokens == (len(common) - len(matched)) * self.size
        assert result.unlocked_pages == len({self.pool.tree[key].page for key in matched} - self.pool.held)
        if not peek:
            self.pool.touch(matched)

    # --- opening

    @rule(
        pick=PICK,
        salt=PICK,
        sequence=SEQUENCES,
        priority=st.sampled_from([0, 50, 50, 90]),
        retain=st.sampled_from([None, None, None, 5.0]),
    )
    def wait(self, pick: int, salt: int, sequence: tuple[str, int], priority: int, retain: float | None) -> None:
        session, tokens = self._session(pick), self._tokens(sequence)
        namespace = self._namespace(session, salt)
        lease_id = self.cache.wait(session.session_id, namespace, tokens, priority=priority, retain_seconds=retain)
        self._add(lease_id, session, namespace, tokens, priority, retain)

    def _add(
        self,
        lease_id: int,
        session: NaiveSession,
        namespace: Namespace,
        tokens: bytes,
        priority: int,
        retain: float | None,
    ) -> NaiveLease:
        assert lease_id not in self.pool.leases
        lease = NaiveLease(lease_id, session.session_id, namespace, tokens, priority, retain is not None)
        self.pool.leases[lease_id] = lease
        return lease

    @rule(
        pick=PICK,
        salt=PICK,
        sequence=SEQUENCES,
        twin=PICK,
        max_tokens=st.sampled_from([None, None, None, 0, 9, 40]),
        allocate=st.sampled_from([None, None, None, 0, 3, 40]),
        reserve=st.sampled_from([None, None, 1, 4]),
        priority=st.sampled_from([0, 50, 50, 90]),
        retain=st.sampled_from([None, None, None, 5.0]),
    )
    def acquire(
        self,
        pick: int,
        salt: int,
        sequence: tuple[str, int],
        twin: int,
        max_tokens: int | None,
        allocate: int | None,
        reserve: int | None,
        priority: int,
        retain: float | None,
    ) -> None:
        session, tokens = self._session(pick), self._tokens(sequence)
        namespace = self._namespace(session, salt)
        other = self._lease(twin) if twin < 6 else None
        if other is not None and other.namespace.model == namespace.model:
            namespace, tokens = other.namespace, other.tokens  # two at once compute the same
        sizes = self._sizes(len(tokens) // 4, allocate, reserve)
        new, reserved, matched, reasons = self._admission(namespace, tokens, max_tokens, sizes)
        needed = max(0, new - len(self.pool.free))
        result = self._attempt(
            reasons,
            lambda: self.cache.acquire(
                session.session_id,
                namespace,
                tokens,
                max_tokens=max_tokens,
                allocate_to=sizes[0],
                reserve_to=sizes[1],
                priority=priority,
                retain_seconds=retain,
            ),
        )
        if result is not None:
            lease = self._add(result.lease_id, session, namespace, tokens, priority, retain)
            self._activated(lease, result, matched, reserved, needed)

    @precondition(lambda self: not all(lease.active for lease in self.pool.leases.values()))
    @rule(
        pick=st.sampled_from(range(100)),
        max_tokens=st.one_of(st.none(), st.none(), st.integers(0, 40)),
        allocate=st.sampled_from([None, None, None, 0, 3, 40]),
        reserve=st.sampled_from([None, None, 1, 4]),
    )
    def activate(self, pick: int, max_tokens: int | None, allocate: int | None, reserve: int | None) -> None:
        waiting = [lease for lease in self.pool.leases.values() if not lease.active]
        lease = waiting[pick % len(waiting)] if waiting and pick % 8 else self._lease(pick)
        if lease is None:
            return
        sizes = self._sizes(lease.known, allocate, reserve)
        new, reserved, matched, reasons = self._admission(lease.namespace, lease.tokens, max_tokens, sizes)
        if lease.active:
            reasons = {Reason.NOT_ACTIVE}
        needed = max(0, new - len(self.pool.free))
        result = self._attempt(
            reasons,
            lambda: self.cache.activate(
                lease.session, lease.lease_id, max_tokens=max_tokens, allocate_to=sizes[0], reserve_to=sizes[1]
            ),
        )
        if result is not None:
            assert result.lease_id == lease.lease_id
            self._activated(lease, result, matched, reserved, needed)

    def _sizes(self, known: int, allocate: int | None, reserve: int | None) -> tuple[int | None, int | None]:
        """allocate_to and reserve_to, from tokens beyond the known ones and pages beyond those."""
        allocate_to = None if allocate is None else 0 if allocate == 0 else known + allocate
        return allocate_to, None if reserve is None else known + (allocate or 0) + reserve * self.size

    def _admission(
        self, namespace: Namespace, tokens: bytes, max_tokens: int | None, sizes: tuple[int | None, int | None]
    ) -> tuple[int, int, list[Key], set[Reason]]:
        """New pages, reserved pages, the match, and why not."""
        matched = self.pool.matched(namespace, tokens, max_tokens)
        allocate_to = len(tokens) // 4 if sizes[0] is None else sizes[0]
        wanted = max(len(matched), self.pool.pages_for(allocate_to))
        reserved = max(0, self.pool.pages_for(sizes[1] or 0) - wanted)
        new = wanted - len(matched)
        if wanted + reserved > len(self.pool.all_pages):
            return new, reserved, matched, {Reason.NEVER_FITS}
        if not self.pool.can_acquire(new + reserved, matched):
            return new, reserved, matched, {Reason.NO_PAGES}
        return new, reserved, matched, set()

    def _activated(self, lease: NaiveLease, result: Any, matched: list[Key], reserved: int, needed: int) -> None:
        pages = result.pages.tolist()
        assert result.device_tokens == len(matched) * self.size
        self.pool.activate(lease, matched, reserved)
        assert pages[: len(matched)] == lease.table, "the table does not begin with the cached prefix"
        self.pool.observe_evictions(read_tree(self.cache), needed)
        self.pool.grant(lease, pages[len(matched) :])
        self.tables[lease.lease_id] = pages
        self.pool.requested += lease.known
        self.pool.hit += result.device_tokens

    @rule(
        pick=PICK,
        salt=PICK,
        sequence=SEQUENCES,
        twin=PICK,
        ago=st.sampled_from([0, 0, 1]),
        priority=st.sampled_from([0, 50, 90]),
    )
    def serve(self, pick: int, salt: int, sequence: tuple[str, int], twin: int, ago: int, priority: int) -> None:
        """A whole request, as most are."""
        before = set(self.pool.leases)
        self.acquire(pick, salt, sequence, twin, None, None, None, priority, None)
        for lease_id in set(self.pool.leases) - before:
            self._release(self.pool.leases[lease_id], 8, ago, False, ("", 0))

    # --- growing and publishing

    @precondition(lambda self: any(lease.active for lease in self.pool.leases.values()))
    @rule(pick=st.sampled_from(range(100)), pages=st.integers(0, 3), odd=EIGHTHS, appended=APPENDED)
    def allocate(self, pick: int, pages: int, odd: int, appended: tuple[str, int]) -> None:
        lease = self._active(pick)
        if lease is None:
            return
        tokens = self._tokens(appended)
        to = len(lease.table) * self.size + pages * self.size - odd % self.size
        new = max(0, self.pool.pages_for(to) - len(lease.table))
        reasons = set() if lease.active else {Reason.NOT_ACTIVE}
        if lease.active and to < 0:
            reasons = {Reason.BAD_FIELD}
        elif lease.active and self.pool.pages_for(to) > len(self.pool.all_pages):
            reasons = {Reason.NEVER_FITS}
        elif lease.active and not self.pool.can_grow(lease, new):
            reasons = {Reason.NO_PAGES}
        needed = max(0, new - len(self.pool.free))
        result = self._attempt(reasons, lambda: self.cache.allocate(lease.session, lease.lease_id, to, tokens))
        if result is None:
            return
        lease.tokens += tokens
        self.pool.observe_evictions(read_tree(self.cache), needed)
        assert len(result.pages) == new
        self.pool.grant(lease, result.pages.tolist())
        lease.reserved -= min(lease.reserved, new)
        self.tables[lease.lease_id] += result.pages.tolist()
        assert result.allocated == len(lease.table) * self.size

    def _length(self, lease: NaiveLease, appended: bytes, eighths: int) -> int:
        """A length between published and the most that can be written; a little beyond at 9 and more."""
        most = min(lease.known + len(appended) // 4, len(lease.table) * self.size)
        least = min(most, len(lease.locked) * self.size)
        return most + 1 if eighths > 8 else least + -(-(most - least) * eighths // 8)

    def _step(self, session: NaiveSession, ago: int) -> int:
        """A step: the last launched or an earlier one, 0, or one that was never launched."""
        return 0 if ago == 0 else max(0, session.launched + 1 - ago) if ago < 4 else session.launched + 1

    @precondition(lambda self: any(lease.active for lease in self.pool.leases.values()))
    @rule(
        pick=st.sampled_from(range(100)),
        eighths=st.sampled_from([0, 3, 5, 8, 8, 8, 8, 9]),
        ago=st.sampled_from([0, 0, 1, 1, 1, 1, 2, 3, 4]),
        appended=APPENDED,
    )
    def insert(self, pick: int, eighths: int, ago: int, appended: tuple[str, int]) -> None:
        lease = self._active(pick)
        if lease is None:
            return
        session, tokens = self.pool.sessions[lease.session], self._tokens(appended)
        written, after_step = self._length(lease, tokens, eighths), self._step(session, ago)
        result: InsertResult | None = self._attempt(
            self._insert_refusals(lease, session, eighths, after_step),
            lambda: self.cache.insert(
                session.session_id, lease.lease_id, written, after_step=after_step, tokens=tokens
            ),
        )
        if result is None:
            return
        lease.tokens += tokens
        waits = self.pool.insert(lease, written, after_step)
        if not waits:
            self.pool.publish(lease, self.pool.publishable(lease, written))
        assert result.pending == waits
        assert result.published == len(lease.locked) * self.size
        self._apply(lease.lease_id, result.patches)

    def _insert_refusals(self, lease: NaiveLease, session: NaiveSession, eighths: int, after_step: int) -> set[Reason]:
        if not lease.active:
            return {Reason.NOT_ACTIVE}
        reasons = {Reason.BAD_FIELD} if eighths > 8 or after_step > session.launched else set()
        return reasons | ({Reason.IN_FLIGHT} if self.pool.busy(lease) else set())

    # --- giving up

    @precondition(lambda self: any(lease.active for lease in self.pool.leases.values()))
    @rule(pick=st.sampled_from(range(100)), back=st.integers(-5, 12), pages=st.booleans())
    def free(self, pick: int, back: int, pages: bool) -> None:
        lease = self._active(pick)
        if lease is None:
            return
        from_length = len(lease.table) * self.size - back * (self.size if pages else 1)
        reasons: set[Reason] = set() if lease.active else {Reason.NOT_ACTIVE}
        lookahead = 1 if self.mode is Speculative.BIGRAM and lease.pending else 0
        if lease.active and from_length < 0:
            reasons |= {Reason.BAD_FIELD}
        if lease.active and self.pool.busy(lease):
            reasons |= {Reason.IN_FLIGHT}
        if lease.active and self.pool.pages_for(from_length) > len(lease.table):
            reasons |= {Reason.DOUBLE_FREE}
        if lease.active and from_length < lease.pending * self.size + lookahead:
            reasons |= {Reason.PUBLISHED}
        result = self._attempt(reasons, lambda: self.cache.free(lease.session, lease.lease_id, from_length))
        if result is not None:
            assert result.freed_pages == self.pool.free_tail(lease, from_length)
            assert result.allocated == len(lease.table) * self.size
            del self.tables[lease.lease_id][len(lease.table) :]

    @precondition(lambda self: any(lease.active for lease in self.pool.leases.values()))
    @rule(
        pick=st.sampled_from(range(100)),
        eighths=st.sampled_from([-1, -1, 3, 8, 8, 8, 9]),
        ago=st.sampled_from([0, 0, 1, 1, 1, 2, 3, 4]),
        keep=st.sampled_from([False, False, True]),
        appended=APPENDED,
    )
    def release(self, pick: int, eighths: int, ago: int, keep: bool, appended: tuple[str, int]) -> None:
        lease = self._active(pick)
        if lease is not None:
            self._release(lease, eighths, ago, keep, appended)

    def _release(self, lease: NaiveLease, eighths: int, ago: int, keep: bool, appended: tuple[str, int]) -> None:
        session, tokens = self.pool.sessions[lease.session], self._tokens(appended)
        publish_to, after_step = max(0, self._length(lease, tokens, eighths)), self._step(session, ago)
        publish_to = 0 if eighths < 0 else publish_to
        wrong = eighths > 8 or after_step > session.launched
        result = self._attempt(
            {Reason.BAD_FIELD} if wrong else set(),
            lambda: self.cache.release(
                session.session_id,
                lease.lease_id,
                publish_to=publish_to,
                after_step=after_step,
                keep=keep,
                tokens=tokens,
            ),
        )
        if result is not None:
            self._released(lease, publish_to, after_step, tokens, result, keep=keep)

    def _released(
        self, lease: NaiveLease, publish_to: int, after_step: int, tokens: bytes, result: Any, *, keep: bool
    ) -> None:
        session = self.pool.sessions[lease.session]
        lease.tokens += tokens
        target = self.pool.publishable(lease, publish_to)
        replaced = sum(len(pages) for _, pages in lease.replaced)
        self.pool.release(lease, keep=keep)
        waits = self.pool.insert(lease, publish_to, after_step) if lease.active else False
        if not waits:
            self.pool.publish(lease, target)
        assert result.published == len(lease.locked) * self.size
        maybe_published = set(lease.table[len(lease.locked) : lease.pending]) & lease.own
        assert len(lease.own - maybe_published) <= result.freed_pages - replaced <= len(lease.own)
        self._settle(session)
        self.tables.pop(lease.lease_id, None)
        due = self.published[session.session_id]
        if lease.active:
            self.published[session.session_id] = [it for it in due if it[0] != lease.lease_id]

    # --- moving

    @precondition(lambda self: any(lease.active for lease in self.pool.leases.values()))
    @rule(pick=st.sampled_from(range(100)), count=st.integers(1, 4), start=EIGHTHS, fault=st.integers(0, 7))
    def move(self, pick: int, count: int, start: int, fault: int) -> None:
        lease = self._active(pick)
        if lease is None or not lease.table:
            return
        session = self.pool.sessions[lease.session]
        own = [page for page in lease.table[lease.pending :] if page in lease.own]
        if not own and fault:
            return
        slots = [page * self.size + offset for page in own[:2] for offset in range(2)]
        destinations = slots[: min(count, len(slots))]
        reasons: set[Reason] = set() if lease.active else {Reason.NOT_ACTIVE}
        if self.pool.busy(lease) or session.in_flight:
            reasons |= {Reason.IN_FLIGHT}
        if fault == 0 and lease.pending:
            destinations = [lease.table[0] * self.size]
            reasons |= {Reason.PUBLISHED}
        elif fault == 0:
            destinations = [0, -1, len(self.pool.all_pages) * self.size + self.size][count % 3 : count % 3 + 1]
            reasons |= {Reason.BAD_FIELD}
        elif fault == 1:
            destinations = [slots[0], slots[0]]
            reasons |= {Reason.BAD_FIELD}
        sources = [lease.table[start % len(lease.table)] * self.size + start % self.size for _ in destinations]
        plan = self._attempt(
            reasons,
            lambda: self.cache.move(
                lease.session, lease.lease_id, np.array(sources, np.int32), np.array(destinations, np.int32)
            ),
        )
        if plan is not None:
            assert (plan.sources.tolist(), plan.destinations.tolist()) == (sources, destinations)
            self.pool.copies[plan.copy_id] = lease

    @precondition(lambda self: self.pool.copies)
    @rule(pick=PICK, failed=st.sampled_from([False, False, True]))
    def finish_copy(self, pick: int, failed: bool) -> None:
        copy_id = sorted(self.pool.copies)[pick % len(self.pool.copies)]
        error = "the device said no" if failed else ""
        self.cache.finish_copy(copy_id, error)
        lease = self.pool.finish_copy(copy_id, failed=failed)
        session = self.pool.sessions[lease.session]
        if not session.ended:
            self.finished[session.session_id].append((copy_id, error))
        self._settle(session)

    # --- endings

    def end_session(self, pick: int, proved_gone: bool, flavour: int) -> None:
        session = self._session(pick)
        left = self.cache.end_session(session.session_id, proved_gone=proved_gone)
        assert left == self.pool.end_session(session, proved_gone=proved_gone)
        self.live.remove(session)
        self.ended.append(session)
        self._attempt({Reason.NO_SESSION}, lambda: self.cache.take_publications(session.session_id))
        if len(self.live) < 2 or flavour > 3:
            self._open(flavour)

    def prove_gone(self, pick: int) -> None:
        if not self.ended:
            return
        session = self.ended[pick % len(self.ended)]
        assert self.cache.prove_gone(session.session_id) == self.pool.prove_gone(session)

    def bar_writers(self, pick: int) -> None:
        session = self._session(pick)
        self.cache.bar_writers(session.session_id)
        self.pool.bar(session.session_id)

    def wrong_lease(self, verb: int, foreign: bool, pick: int) -> None:
        session = self._session(pick)
        others = [lease for lease in self.pool.leases.values() if lease.session != session.session_id]
        lease_id = others[pick % len(others)].lease_id if foreign and others else 10_000 + pick
        reason = Reason.NOT_YOURS if foreign and others else Reason.NO_LEASE
        one = np.array([self.size], np.int32)
        call = session.session_id, lease_id
        verbs: tuple[Callable[[], Any], ...] = (
            lambda: self.cache.match_lease(*call),
            lambda: self.cache.activate(*call),
            lambda: self.cache.allocate(*call, 1),
            lambda: self.cache.insert(*call, 0),
            lambda: self.cache.free(*call, 0),
            lambda: self.cache.release(*call),
            lambda: self.cache.move(*call, one, one),
        )
        self._attempt({reason}, verbs[verb])

    # --- operators

    @rule(pages=st.sampled_from([0, 1, 1, 2, 3]))
    def evict(self, pages: int) -> None:
        expected = min(pages, len(self.pool.evictable))
        assert self.cache.evict(pages) == expected
        self.pool.observe_evictions(read_tree(self.cache), expected)

    def flush(self) -> None:
        result = self.cache.flush()
        assert result.freed_pages == self.pool.flush()
        assert result.detached_pages == len(self.pool.held)
        assert result.generation == self.pool.generation == self.cache.generation

    @rule(seconds=st.sampled_from([1.0, 6.0]))
    def pass_time(self, seconds: float) -> None:
        self.time += seconds
        self.cache.tick()

    @rule(event=st.sampled_from(range(16)), pick=PICK, flag=st.booleans(), number=st.integers(0, 7))
    def rarely(self, event: int, pick: int, flag: bool, number: int) -> None:
        """What would leave nothing standing if it came as often as the rest."""
        events = (
            lambda: self.end_session(pick, flag, number),
            lambda: self.prove_gone(pick),
            lambda: self.bar_writers(pick),
            self.flush,
            lambda: self.evict(99),
            lambda: self.batch_with_wrong_counts(pick, number % 4),
        )
        if event < len(events):
            events[event]()
        else:
            self.wrong_lease(number % 7, flag, pick)

    # --- how often: a rule listed again is taken that much more often

    batch_too = batch_again = batch
    acquire_too = acquire_again = acquire
    serve_too = serve
    insert_too = insert_again = insert_often = insert
    allocate_too = allocate
    release_too = release_again = release_often = release

    # --- what always holds

    @invariant()
    def agrees(self) -> None:
        check_invariants(self.cache)
        self.pool.check()
        self.pool.assert_tree(read_tree(self.cache))
        pool, totals = self.pool, self.cache.occupancy()
        assert totals.total == len(pool.all_pages)
        assert totals.free == len(pool.free)
        assert totals.evictable == len(pool.evictable)
        assert totals.protected == len(pool.held)
        assert totals.leased + totals.retired == len(pool.leased | pool.given_up)
        assert totals.max_fit == pool.max_fit
        for session in self.live:
            mine = sum(lease.reserved for lease in pool.leases.values() if lease.session == session.session_id)
            occupancy = self.cache.occupancy(session.session_id)
            assert (occupancy.reserved_mine, occupancy.reserved_others) == (mine, pool.reservations - mine)
            unclaimed = totals.free + totals.evictable - pool.reservations + mine
            assert occupancy.available == max(0, unclaimed)
        counters = self.cache.counters
        assert (counters.requested_tokens, counters.hit_tokens) == (pool.requested, pool.hit)
        assert (counters.inserted_pages, counters.evicted_pages) == (pool.inserted, pool.evicted)

    def teardown(self) -> None:
        """Everyone goes, and every page comes back."""
        if not hasattr(self, "cache"):
            return
        for session in self.live:
            self.cache.end_session(session.session_id, proved_gone=True)
        for session in self.ended:
            self.cache.prove_gone(session.session_id)
        for copy_id in self.pool.copies:
            self.cache.finish_copy(copy_id)
        check_invariants(self.cache)
        occupancy = self.cache.occupancy()
        assert occupancy.free + occupancy.evictable == occupancy.total


@pytest.mark.parametrize("policy", ["priority", "lru"])
@pytest.mark.parametrize("mode", list(Speculative))
def test_the_cache_agrees_with_the_model(mode: Speculative, policy: str) -> None:
    run_machine(CacheMachine, 200, mode=mode, policy=policy)


@pytest.mark.parametrize("policy", [policy for policy in POLICIES if policy not in ("priority", "lru")])
@pytest.mark.parametrize("mode", list(Speculative))
def test_the_cache_agrees_with_the_model_under_other_policies(mode: Speculative, policy: str) -> None:
    run_machine(CacheMachine, 30, mode=mode, policy=policy)
