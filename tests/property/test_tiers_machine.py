"""Random schedulers on a pool of two tiers, with late and failing copies and restarts: every byte is where it is said.

No model predicts what is cached. What is checked is what must hold whatever is: nobody reads, writes or is handed what
he must not, both ledgers balance, and a journal tells what the host tier holds.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from radixd.server.cache.config import WritePolicy
from radixd.server.cache.invariants import check_invariants
from radixd.server.cache.lease import LeaseState
from radixd.server.cache.namespace import Namespace
from radixd.server.cache.node import Node
from radixd.server.cache.page_map import PageState, TierMap, read_page_map
from radixd.server.cache.prefix_cache import CacheConfig, PrefixCache
from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.cache.results import AcquireResult, Arrival, MovePlan, PageIds, TablePatch
from radixd.server.cache.session import Dedup
from radixd.server.cache.speculative import Speculative
from radixd.server.cache.step import StepMark
from tests.property.host_journal import HostJournal
from tests.property.machines import run_machine
from tests.property.observed import fingerprint
from tests.property.tier_bytes import Content, Junk, Step, TierBytes

PAGE = 4
MODEL = b"model"
SALTS = (b"", b"salt")
LETTERS = "ab"
PICK = st.integers(0, 63)
SEQUENCES = st.tuples(st.text(LETTERS, min_size=1, max_size=5), st.integers(0, PAGE - 1))
NOT_NOW = {Reason.NO_PAGES, Reason.NEVER_FITS}
SIZES = {
    "pages": st.sampled_from([8, 14, 24]),
    "host_pages": st.sampled_from([4, 12, 40]),
    "promote_min_pages": st.integers(1, 2),
    "free_target_pages": st.sampled_from([0, 4, 24]),
    "max_copy_pages": st.sampled_from([4, 100, 100]),
    "policy": st.sampled_from(["priority", "lru", "slru"]),
}


def tokens_of(letters: str, tail: int) -> bytes:
    """Pages of one token each, then `tail` tokens more: what bytes are where is what matters here, not which tokens."""
    runs = [np.full(PAGE, ord(letter), "<u4") for letter in letters]
    return b"".join(run.tobytes() for run in runs) + np.full(tail, 7, "<u4").tobytes()


def counted(tier: TierMap) -> dict[PageState, int]:
    states = tier.paint()
    return {state: int(np.count_nonzero(states == state)) for state in PageState}


@dataclass(eq=False)
class ClientLease:
    """A lease as its scheduler sees it: its table, what of it can be read, and what it waits for."""

    lease_id: int
    session: int
    namespace: Namespace
    tokens: bytes
    table: list[int] = field(default_factory=list)
    covered: int = 0  # tokens whose bytes are there, or written by a step that has been launched
    loading: set[int] = field(default_factory=set)
    state: str = "waiting"  # or active, saving, offloaded
    restoring: int = 0  # the copy of its own pages

    @property
    def known(self) -> int:
        return len(self.tokens) // 4

    @property
    def runs(self) -> bool:
        return self.state == "active" and not self.loading

    def content(self, page: int) -> Content:
        """What the page at a table index holds once all known tokens are written."""
        return self.namespace, self.tokens[: min((page + 1) * PAGE, self.known) * 4]


@dataclass
class ClientSession:
    """A scheduler's counts."""

    session_id: int
    seq: int = 0
    launched: int = 0
    completed: int = 0


class TierMachine(RuleBasedStateMachine):
    """Two sessions at a time. A rule is what a client, the copier, an operator or a power cut does."""

    mode: Speculative
    write_policy: WritePolicy
    asks_peers = False  # whether Match and Acquire look into other pools

    @initialize(sizes=st.fixed_dictionaries(SIZES), sequences=st.lists(SEQUENCES, max_size=4))
    def make(self, sizes: dict[str, Any], sequences: list[tuple[str, int]]) -> None:
        self.time = 0.0
        self._begin(sizes)
        for sequence in sequences:
            self.serve(0, sequence)

    def _begin(self, sizes: dict[str, Any]) -> None:
        """An empty pool."""
        self.config = CacheConfig(page_size=PAGE, speculative=self.mode, write_policy=self.write_policy, **sizes)
        self.bytes = TierBytes()
        self.journal = HostJournal()
        self.sessions: dict[int, ClientSession] = {}
        self.leases: list[ClientLease] = []
        self.unproved: list[int] = []
        self.moves: list[MovePlan] = []
        self.numbers = iter(range(1, 1_000_000))
        self._start([])

    def _start(self, paths: list[tuple[Namespace, bytes, PageIds]]) -> int:
        """A daemon begins, with what a journal tells. Returns the host pages that it took."""
        self.cache = PrefixCache(self.config, clock=lambda: self.time)
        adopted = self.cache.adopt(paths)
        self.cache.keep_journal()
        for _ in range(2):
            self._open()
        return adopted

    def _open(self) -> None:
        number = next(self.numbers)
        self.cache.open_session(number, MODEL, Dedup.PATCH if number % 2 else Dedup.KEEP)
        self.sessions[number] = ClientSession(number)
        self._advance(self.sessions[number])

    # --- picking and calling

    def _session(self, pick: int) -> ClientSession:
        return list(self.sessions.values())[pick % len(self.sessions)]

    def _lease(self, pick: int, *states: str) -> ClientLease | None:
        leases = [lease for lease in self.leases if lease.state in states]
        return leases[pick % len(leases)] if leases else None

    def _try(self, reasons: set[Reason], call: Callable[[], Any]) -> Any:
        """A call that may be refused for one of `reasons`, and then changes nothing."""
        self.cache.tick()
        before = fingerprint(self.cache)
        refusal: Refusal | None = None
        try:
            return call()
        except Refusal as caught:
            refusal = caught
        assert refusal.reason in reasons, refusal
        assert fingerprint(self.cache) == before, f"a refused call ({refusal}) changed something"
        return None

    # --- the end of every turn

    @invariant()
    def turn(self) -> None:
        """What a daemon does after each Batch and each finished copy, and what then must hold."""
        plans = self.cache.take_plans()
        self.journal.write(self.cache.take_journal())
        for plan in plans:
            self.bytes.begin(plan)
        check_invariants(self.cache)
        self._check_bytes()
        self._check_tables()
        self._check_page_map()

    def _check_page_map(self) -> None:
        """The picture of the pages has as many of each state as the ledgers."""
        page_map = read_page_map(self.cache)
        assert page_map.whole
        device, host = self.cache.occupancy(), self.cache.host_occupancy()
        assert counted(page_map.device) == {
            PageState.SYSTEM: 1, PageState.FREE: device.free, PageState.LEASED: device.leased,
            PageState.EVICTABLE: device.evictable, PageState.PROTECTED: device.protected,
            PageState.RETIRED: device.retired,
        }  # fmt: skip
        assert counted(page_map.host) == {
            PageState.SYSTEM: 1, PageState.FREE: host.free, PageState.LEASED: host.leased,
            PageState.EVICTABLE: host.evictable, PageState.PROTECTED: host.protected, PageState.RETIRED: 0,
        }  # fmt: skip

    def _check_bytes(self) -> None:
        """Whatever the tree holds on a tier is there; the journal holds what of it could be adopted, and no more."""
        prefixes: dict[Node, bytes] = {}
        kept: dict[int, Namespace] = {}
        width = self.cache.tree.page_bytes
        for node in self.cache.tree:
            assert node.parent is not None
            before = prefixes.get(node.parent, b"")
            key = prefixes[node] = before + node.run()
            ends = range(len(before) + width, len(key) + width, width)
            contents: list[Content] = [(node.root.namespace, self._plain(key[:end])) for end in ends]
            if len(node.pages) and node.arriving is None:
                self.bytes.check_device(node.pages, contents)
            if len(node.host):
                self.bytes.check_host(node.host, contents)
                if not node.root.detached:
                    kept |= dict.fromkeys(node.host.tolist(), node.root.namespace)
        assert {page: entry.namespace for page, entry in self.journal.entries.items()} == kept

    def _plain(self, key: bytes) -> bytes:
        """The tokens of key elements, without the one that pairs look ahead to."""
        return np.frombuffer(key, "<u4")[::2].tobytes() if self.mode is Speculative.BIGRAM else key

    def _check_tables(self) -> None:
        for lease in self.leases:
            ours = self.cache.sessions[lease.session].leases[lease.lease_id]
            assert (ours.state is LeaseState.WAITING) == (lease.state == "waiting")
            if lease.runs and not self._unread(lease):
                assert ours.table.pages.tolist() == lease.table

    def _unread(self, lease: ClientLease) -> bool:
        """Whether a reply has yet to tell the lease something."""
        session = self.cache.sessions[lease.session]
        return any(it.lease_id == lease.lease_id for it in (*session.publications, *session.arrivals, *session.saved))

    # --- batches and steps

    def _advance(self, session: ClientSession) -> None:
        session.seq += 1
        mark = StepMark(session.seq, session.seq - 1, session.launched, session.completed)
        self.bytes.complete(session.session_id, session.completed)
        self.cache.advance(session.session_id, mark)
        self._reply(session)

    def _reply(self, session: ClientSession) -> None:
        """What the reply to a Batch tells."""
        leases = {lease.lease_id: lease for lease in self.leases}
        for publication in self.cache.take_publications(session.session_id):
            if publication.lease_id in leases:
                self._patch(leases[publication.lease_id], publication.patches)
        for saved in self.cache.take_saved(session.session_id):
            leases[saved.lease_id].state = "active" if saved.error else "offloaded"
        for arrival in self.cache.take_arrivals(session.session_id):
            self._arrived(leases[arrival.lease_id], arrival)
        self.cache.take_finished_copies(session.session_id)

    def _patch(self, lease: ClientLease, patches: tuple[TablePatch, ...]) -> None:
        for patch in patches:
            pages = patch.pages.tolist()
            assert patch.first_page + len(pages) <= len(lease.table)
            lease.table[patch.first_page : patch.first_page + len(pages)] = pages

    def _arrived(self, lease: ClientLease, arrival: Arrival) -> None:
        assert arrival.copy_id in lease.loading
        lease.loading.discard(arrival.copy_id)
        for patch in arrival.patches:
            self._fresh(patch.pages.tolist())
        self._patch(lease, arrival.patches)
        assert arrival.error or not arrival.patches
        lease.covered = min(lease.covered, arrival.device_tokens)
        self._check_readable(lease)

    def _check_readable(self, lease: ClientLease) -> None:
        """A lease that waits for nothing can read all that it has been promised."""
        if lease.runs:
            whole, rest = divmod(lease.covered, PAGE)
            for page in range(whole):
                assert self.bytes.device.get(lease.table[page]) == lease.content(page)
            if rest:  # of this page the lease may know more than has been written
                held = self.bytes.device.get(lease.table[whole])
                assert isinstance(held, tuple)
                assert held[0] == lease.namespace
                assert held[1].startswith(lease.tokens[: lease.covered * 4])

    def _fresh(self, pages: list[int]) -> None:
        """Pages handed out as a lease's own."""
        self.bytes.check_unused(pages)
        self.bytes.device |= {page: Junk("new", page) for page in pages}

    @rule(pick=PICK, launch=st.booleans(), complete=st.integers(0, 2))
    def batch(self, pick: int, launch: bool, complete: int) -> None:
        """Launches a step that reads what its leases hold and writes what they know, and sees others completed."""
        session = self._session(pick)
        if launch:
            session.launched += 1
            step = Step(session.launched)
            for lease in self.leases:
                if lease.session == session.session_id and lease.runs and not self._unread(lease):
                    self._run(lease, step)
            self.bytes.launch(session.session_id, step)
        session.completed = min(session.launched, session.completed + complete)
        self._advance(session)

    def _run(self, lease: ClientLease, step: Step) -> None:
        target = min(lease.known, len(lease.table) * PAGE)
        whole = lease.covered // PAGE
        step.reads |= {lease.table[page]: lease.content(page) for page in range(whole)}
        if target > lease.covered:
            step.writes |= {lease.table[page]: lease.content(page) for page in range(whole, -(-target // PAGE))}
            lease.covered = target

    @rule(pick=PICK)
    def keep_alive(self, pick: int) -> None:
        self.time += pick % 4
        session = self._session(pick)
        session.completed = session.launched
        self.bytes.complete(session.session_id, session.completed)
        self.cache.complete(session.session_id, session.completed)

    # --- verbs

    @rule(pick=PICK, salt=st.integers(0, 5), sequence=SEQUENCES, peek=st.booleans())
    def match(self, pick: int, salt: int, sequence: tuple[str, int], peek: bool) -> None:
        namespace = Namespace(MODEL, cache_salt=SALTS[salt == 0])
        tokens = tokens_of(*sequence)
        session_id = self._session(pick).session_id
        result = self.cache.match(session_id, namespace, tokens, peek=peek, peers=self.asks_peers)
        matched = result.device_tokens + result.host_tokens + result.peer_tokens
        assert matched + result.rollback_tokens <= max(0, len(tokens) // 4 - 1)
        assert bool(result.peer_tokens) == bool(result.peer)

    @rule(
        pick=PICK,
        salt=st.integers(0, 5),
        sequence=SEQUENCES,
        most=st.booleans(),
        ahead=st.integers(0, 3),
        reserve=st.integers(0, 9),
        priority=st.sampled_from([0, 50, 50, 90]),
        retain=st.sampled_from([None, None, 5.0]),
        wait=st.sampled_from([False, False, False, True]),
    )
    def open(
        self,
        pick: int,
        salt: int,
        sequence: tuple[str, int],
        most: bool,
        ahead: int,
        reserve: int,
        priority: int,
        retain: float | None,
        wait: bool,
    ) -> None:
        running = [lease for lease in self.leases if lease.state in ("active", "waiting")]
        if len(running) > 2:
            self._release(running[pick % 3], share=4, keep=False)
            self.turn()
        session, tokens = self._session(pick), tokens_of(*sequence)
        namespace = Namespace(MODEL, cache_salt=SALTS[salt == 0])
        lease = ClientLease(0, session.session_id, namespace, tokens)
        sizes = {"allocate_to": lease.known + ahead, "reserve_to": lease.known + ahead + reserve}
        to_come = {"priority": priority, "retain_seconds": retain}
        if wait:
            lease.lease_id = self.cache.wait(session.session_id, namespace, tokens, **to_come)  # type: ignore[arg-type]
            self.leases.append(lease)
            return
        most_tokens = lease.known if most else None
        result = self._try(
            NOT_NOW,
            lambda: self.cache.acquire(
                session.session_id, namespace, tokens, max_tokens=most_tokens, **sizes, **to_come, **self._asking()
            ),
        )
        if result is not None:
            lease.lease_id = result.lease_id
            self.leases.append(lease)
            self._activated(lease, result)

    def _asking(self) -> dict[str, Any]:
        return {"import_from_peers": self.asks_peers}

    @rule(pick=PICK, sequence=SEQUENCES)
    def serve(self, pick: int, sequence: tuple[str, int]) -> None:
        """A whole request, published."""
        before = len(self.leases)
        self.open(pick, 1, sequence, most=False, ahead=0, reserve=0, priority=50, retain=None, wait=False)
        self.turn()
        self.batch(pick, launch=True, complete=0)
        self.turn()
        if len(self.leases) > before:
            self._release(self.leases[-1], share=4, keep=False)
            self.turn()
            self.batch(pick, launch=False, complete=2)

    @rule(pick=PICK)
    def activate(self, pick: int) -> None:
        lease = self._lease(pick, "waiting")
        if lease is not None:
            result = self._try(NOT_NOW, lambda: self.cache.activate(lease.session, lease.lease_id, **self._asking()))
            if result is not None:
                self._activated(lease, result)

    def _activated(self, lease: ClientLease, result: AcquireResult) -> None:
        assert bool(result.host_tokens) + bool(result.peer_tokens) == len(result.loading)
        lease.table, lease.loading = result.pages.tolist(), set(result.loading)
        lease.state, lease.covered = "active", result.device_tokens
        self._fresh(lease.table[result.device_tokens // PAGE :])
        self._check_readable(lease)

    @rule(pick=PICK, more=SEQUENCES, ahead=st.integers(0, 5))
    def allocate(self, pick: int, more: tuple[str, int], ahead: int) -> None:
        lease = self._lease(pick, "active", "saving", "offloaded")
        if lease is None:
            return
        tokens = tokens_of(more[0][:2], more[1])
        length = lease.known + len(tokens) // 4 + ahead
        reasons = NOT_NOW | (
            {Reason.NOT_ACTIVE} if lease.state != "active" or lease.restoring in lease.loading else set()
        )
        result = self._try(reasons, lambda: self.cache.allocate(lease.session, lease.lease_id, length, tokens))
        if result is not None:
            self._fresh(result.pages.tolist())
            lease.table += result.pages.tolist()
            lease.tokens += tokens

    @rule(pick=PICK, share=st.integers(1, 4), later=st.booleans())
    def insert(self, pick: int, share: int, later: bool) -> None:
        lease = self._lease(pick, "active")
        if lease is None or self._unread(lease):
            return
        session = self.sessions[lease.session]
        after = session.launched if later or session.launched > session.completed else 0
        written = lease.covered * share // 4
        result = self._try(
            {Reason.IN_FLIGHT, Reason.NOT_ACTIVE},
            lambda: self.cache.insert(lease.session, lease.lease_id, written, after_step=after),
        )
        if result is not None:
            assert not lease.loading
            self._patch(lease, result.patches)

    @rule(pick=PICK, back=st.integers(0, 9))
    def free(self, pick: int, back: int) -> None:
        lease = self._lease(pick, "active")
        if lease is None or self._unread(lease):
            return
        length = max(0, len(lease.table) * PAGE - back)
        result = self._try(
            {Reason.IN_FLIGHT, Reason.NOT_ACTIVE, Reason.PUBLISHED},
            lambda: self.cache.free(lease.session, lease.lease_id, length),
        )
        if result is not None:
            del lease.table[result.allocated // PAGE :]
            # The page that the length lies in is written anew: what it holds beyond is void.
            if length < lease.known:
                lease.tokens = lease.tokens[: length * 4]
                lease.covered = min(lease.covered, length // PAGE * PAGE)

    @rule(pick=PICK, share=st.sampled_from([0, 4, 4, 2]), keep=st.booleans())
    def release(self, pick: int, share: int, keep: bool) -> None:
        lease = self._lease(pick, "active", "active", "active", "saving", "offloaded", "waiting")
        if lease is not None:
            self._release(lease, share, keep and pick % 2 == 0)

    def _release(self, lease: ClientLease, share: int, keep: bool) -> None:
        publish_to = lease.covered * share // 4 if lease.runs and not self._unread(lease) else 0
        session = self.sessions[lease.session]
        self._try(
            set(),
            lambda: self.cache.release(
                lease.session, lease.lease_id, publish_to=publish_to, after_step=session.launched, keep=keep
            ),
        )
        self.leases.remove(lease)
        if keep:
            self.leases.append(ClientLease(lease.lease_id, lease.session, lease.namespace, lease.tokens))

    @rule(pick=PICK, reserve=st.integers(0, 9), quiet=st.booleans())
    def preempt(self, pick: int, reserve: int, quiet: bool) -> None:
        """Brings a lease back, or else sends one off; in quiet times it gets there at once."""
        if pick % 4 and self._lease(0, "offloaded") is not None:
            self._restore(pick, reserve)
            return
        self._offload(pick)
        if quiet:
            self.turn()
            for session in self.sessions.values():
                session.completed = session.launched
                self._advance(session)
            self.turn()
            self.finish_copies(8, failed=False, told=True)

    def _offload(self, pick: int) -> None:
        lease = self._lease(pick, "active")
        if lease is None or (lease.loading and self._unread(lease)):  # it has yet to hear how its load has ended
            return
        reasons = {Reason.NO_PAGES}
        if lease.loading or self.moves or self._unread(lease):
            reasons |= {Reason.IN_FLIGHT, Reason.NOT_ACTIVE}
        pages = self._try(reasons, lambda: self.cache.offload(lease.session, lease.lease_id))
        if pages is not None:
            lease.state = "saving"

    def _restore(self, pick: int, reserve: int) -> None:
        lease = self._lease(pick, "offloaded")
        if lease is None:
            return
        reasons = NOT_NOW | {Reason.IN_FLIGHT}
        result: AcquireResult | None = self._try(
            reasons, lambda: self.cache.restore(lease.session, lease.lease_id, reserve_to=lease.known + reserve)
        )
        if result is None:
            return
        lease.table, lease.loading, lease.state = result.pages.tolist(), set(result.loading), "active"
        ours = self.cache.sessions[lease.session].leases[lease.lease_id]
        self._fresh(lease.table[ours.published // PAGE :])
        lease.restoring = result.loading[-1] if ours.state is LeaseState.RESTORING else 0
        lease.covered = min(lease.covered, result.device_tokens)
        self._check_readable(lease)

    @rule(pick=PICK)
    def move(self, pick: int) -> None:
        """Moves a slot onto itself: the bytes stay, and the copy is in everybody's way."""
        lease = self._lease(pick, "active")
        if lease is None or not lease.runs or self._unread(lease):
            return
        own = self.cache.sessions[lease.session].leases[lease.lease_id].table.own_pages(-(-lease.covered // PAGE))
        if len(own):
            slots = np.array([own[-1] * PAGE], np.int32)
            reasons = {Reason.IN_FLIGHT, Reason.PUBLISHED, Reason.NOT_ACTIVE}
            plan = self._try(reasons, lambda: self.cache.move(lease.session, lease.lease_id, slots, slots))
            self.moves += [plan] if plan is not None else []

    # --- the copier

    @rule(copies=st.integers(1, 4), failed=st.sampled_from([False] * 4 + [True]), told=st.booleans())
    def finish_copies(self, copies: int, failed: bool, told: bool) -> None:
        """The oldest copies end, all well or all badly, and perhaps everybody is told."""
        for _ in range(min(copies, len(self.bytes.copies))):
            self.cache.finish_copy(self.bytes.end(failed=failed), "the device said no" if failed else "")
            self.turn()
        if self.moves and copies % 2:
            self.cache.finish_copy(self.moves.pop(0).copy_id, "the device said no" if failed else "")
        for session in self.sessions.values() if told else ():
            self._advance(session)

    # --- endings

    @rule(pick=PICK, upset=st.sampled_from(["killed", "silent", "dead writer", "flush", "restart"]), rare=st.booleans())
    def upset(self, pick: int, upset: str, rare: bool) -> None:
        """What seldom happens: those who die, those who fall silent, an operator, a power cut."""
        if self.unproved and pick % 2:
            session_id = self.unproved.pop()
            self.bytes.steps.pop(session_id, None)
            self.cache.prove_gone(session_id)
        elif not rare:
            return
        elif upset in ("killed", "silent"):
            self._lose(pick, proved=upset == "killed")
        elif upset == "dead writer":
            self.cache.bar_writers(self._session(pick).session_id)
        elif upset == "flush":
            self.cache.flush()
        else:
            self._restart()

    def _lose(self, pick: int, *, proved: bool) -> None:
        """A session ends with a request running and a step in flight; others want its pages at once."""
        self.open(pick, 1, ("aab", 1), most=False, ahead=4, reserve=0, priority=50, retain=None, wait=False)
        self.turn()
        self.batch(pick, launch=True, complete=0)
        self.turn()
        self._end_session(self._session(pick).session_id, proved=proved)
        self.turn()
        for letters in ("bbbbb", "ababa"):
            self.serve(pick, (letters, 0))

    def _end_session(self, session_id: int, *, proved: bool) -> None:
        cached = {page for node in self.cache.tree for page in node.pages.tolist()}
        self.cache.end_session(session_id, proved_gone=proved)
        del self.sessions[session_id]
        self.leases = [lease for lease in self.leases if lease.session != session_id]
        if proved:
            self.bytes.steps.pop(session_id, None)
        else:
            self.unproved.append(session_id)
            self.bytes.unlock(session_id, cached)
        self._open()

    def _restart(self) -> None:
        """Power goes, at any moment; what the journal says is adopted, and nothing else."""
        self.bytes.lose_device()
        self.sessions.clear()
        self.leases.clear()
        self.unproved.clear()
        self.moves.clear()
        paths = list(self.journal.paths())
        self.journal = self.journal.restarted()
        assert self._start(paths) == len(self.journal.entries)

    @rule(pages=st.sampled_from([1, 2, 3, 30, 30]), quiet=st.booleans())
    def evict(self, pages: int, quiet: bool) -> None:
        if quiet:
            self.cache.save_all()
            self.turn()
            self.finish_copies(8, failed=False, told=True)
        expected = min(pages, self.cache.device.evictable)
        assert self.cache.evict(pages) == expected

    def teardown(self) -> None:
        """Everyone goes, and every page of both tiers comes back."""
        if not hasattr(self, "cache"):
            return
        for session_id in list(self.sessions):
            self.cache.end_session(session_id, proved_gone=True)
        for session_id in self.unproved:
            self.cache.prove_gone(session_id)
        for move in self.moves:
            self.cache.finish_copy(move.copy_id)
        self.turn_until_quiet()
        self.cache.flush()
        self.journal.write(self.cache.take_journal())
        check_invariants(self.cache)
        device, host = self.cache.occupancy(), self.cache.host_occupancy()
        assert (device.free, host.free, self.cache.tree.nodes) == (device.total, host.total, 0)
        assert not self.cache.endings.remains
        assert not self.journal.entries

    def turn_until_quiet(self) -> None:
        self.leases.clear()
        self.bytes.steps.clear()
        self.turn()
        while self.bytes.copies:
            self.finish_copies(4, failed=False, told=False)


@pytest.mark.parametrize("write_policy", list(WritePolicy))
@pytest.mark.parametrize("mode", list(Speculative))
def test_every_byte_of_both_tiers_is_where_it_is_said(mode: Speculative, write_policy: WritePolicy) -> None:
    run_machine(TierMachine, 60 if mode is Speculative.NONE else 25, mode=mode, write_policy=write_policy)
