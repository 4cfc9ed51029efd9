"""How sessions end: what each kind of end frees, and what it must not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from radixd.gpu_pool.presets import load_geometry
from radixd.server.cache.invariants import check_invariants
from radixd.server.cache.namespace import Namespace
from radixd.server.cache.prefix_cache import CacheConfig, PrefixCache
from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.cache.results import MovePlan, Occupancy
from radixd.server.cache.session import Dedup
from radixd.server.cache.speculative import Speculative
from radixd.server.cache.step import StepMark
from radixd.server.sessions.limits import Limits
from radixd.server.sessions.liveness import Liveness
from radixd.server.sessions.opening import Opening
from radixd.server.sessions.registry import SessionRegistry
from radixd.server.sessions.served_pool import Snapshot
from radixd.server.sessions.served_session import ServedSession
from radixd.server.sessions.work import Work
from tests.sequences import seq

EPOCH = 7
PAGES = 16
LIVENESS = Liveness(keepalive_seconds=5, grace_seconds=10, ttl_seconds=30)
MODEL = b"model-1"


class LedgerPool:
    name = "main"
    geometry = load_geometry("tiny")
    layout_kind = "page_first"
    device_kind = "meta"
    devices = 1
    policy = "priority"
    speculative = Speculative.NONE

    def __init__(self) -> None:
        self.cache = PrefixCache(CacheConfig(PAGES))
        self.broken: str | None = None
        self.broken_reason = Reason.BROKEN_INVARIANT
        self.journal = ""
        self.work = Work()

    def run_move(self, plan: MovePlan, done: Callable[[str], None]) -> None:
        raise AssertionError("nothing moves here")

    def turn(self) -> None:
        """Without a host tier, nothing is left to do."""

    async def snapshot(self) -> Snapshot:
        raise AssertionError("there is no journal")


@dataclass(eq=False)
class Process:
    pid: int = 1
    released: bool = False

    def release(self) -> bool:
        self.released = True
        return True


@dataclass(eq=False)
class RecordedStream:
    stopped: list[Reason] = field(default_factory=list)

    def stop(self, refusal: Refusal) -> None:
        self.stopped.append(refusal.reason)

    def finish(self, refusal: Refusal) -> None:
        self.stop(refusal)


class Daemon:
    """A registry over one pool, and time that passes when told."""

    def __init__(self) -> None:
        self.pool = LedgerPool()
        self.registry = SessionRegistry({"main": self.pool}, EPOCH, Limits(), LIVENESS, "/attach.sock")
        self.opened = 0

    def open(self, nonce: bytes | None = None) -> ServedSession:
        self.opened += 1
        nonce = self.opened.to_bytes(16) if nonce is None else nonce
        return self.registry.open(Opening("", "tester", nonce, MODEL, b"", None, Dedup.KEEP))

    def attach(self, session: ServedSession, *processes: Process) -> None:
        for process in processes:
            assert self.registry.attach(session.id, session.secret, process) is self.pool

    def lease(self, session: ServedSession, letters: str = "AB", launched: int = 0) -> int:
        """An active lease whose pages are private, in a Batch that says how many steps are launched."""
        self.pool.cache.advance(session.id, StepMark(1, 0, launched, 0))
        return self.pool.cache.acquire(session.id, Namespace(MODEL), seq(letters)).lease_id

    def pass_seconds(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.registry.tick(1.0)

    def lives(self, session: ServedSession) -> bool:
        return any(live is session and not live.ended for live in self.registry)

    @property
    def ledger(self) -> Occupancy:
        check_invariants(self.pool.cache)
        return self.pool.cache.occupancy()


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


def refused(call: Callable[[], object]) -> Reason:
    with pytest.raises(Refusal) as caught:
        call()
    return caught.value.reason


def test_the_epoch_is_checked_before_the_session_and_the_session_before_the_secret(daemon: Daemon) -> None:
    session = daemon.open()
    find = daemon.registry.find
    assert find(session.id, session.secret, EPOCH) is session
    assert refused(lambda: find(999, b"", EPOCH + 1)) is Reason.STALE_EPOCH
    assert refused(lambda: find(999, session.secret, EPOCH)) is Reason.NO_SESSION
    assert refused(lambda: find(session.id, session.secret[:-1], EPOCH)) is Reason.BAD_SECRET
    assert refused(lambda: daemon.registry.attach(session.id, b"", Process())) is Reason.BAD_SECRET
    assert refused(lambda: daemon.registry.attach(999, b"", Process())) is Reason.NO_SESSION


def test_ids_and_secrets_never_come_back(daemon: Daemon) -> None:
    nonce = bytes(16)
    first = daemon.open(nonce)
    assert daemon.open(nonce) is first
    daemon.registry.close(first.id, first.secret, EPOCH, 0)
    second = daemon.open(nonce)
    assert (second.id, second.secret) != (first.id, first.secret)
    assert not daemon.lives(first)


def test_a_session_ends_in_the_step_in_which_its_last_process_is_gone(daemon: Daemon) -> None:
    session, scheduler, worker = daemon.open(), Process(1), Process(2)
    stream = RecordedStream()
    session.take_over(stream)
    daemon.attach(session, scheduler, worker)
    daemon.lease(session, launched=1)
    daemon.registry.holder_gone(session.id, worker)
    assert daemon.lives(session)
    daemon.registry.holder_gone(session.id, scheduler)
    assert not daemon.lives(session)
    assert stream.stopped == [Reason.NO_SESSION]
    assert daemon.ledger.free == PAGES


def test_what_a_dead_process_may_have_written_is_never_published(
    daemon: Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    session, scheduler, worker = daemon.open(), Process(1), Process(2)
    daemon.attach(session, scheduler, worker)
    before = daemon.lease(session)
    daemon.registry.holder_gone(session.id, worker)
    told = f"session {session.id}: pid 2 has left, other attachments stay; leases that publish nothing more: 1"
    assert told in caplog.messages
    cache = daemon.pool.cache
    assert cache.insert(session.id, before, 128).published == 0
    after = cache.acquire(session.id, Namespace(MODEL), seq("XY")).lease_id
    assert cache.insert(session.id, after, 128).published == 128


def test_a_holder_is_gone_once_and_only_if_it_was_there(daemon: Daemon) -> None:
    session, process = daemon.open(), Process()
    daemon.attach(session, process)
    daemon.registry.holder_gone(session.id, Process())
    daemon.registry.holder_gone(999, process)
    assert daemon.lives(session)
    daemon.registry.holder_gone(session.id, process)
    daemon.registry.holder_gone(session.id, process)
    assert not daemon.lives(session)


def test_a_pool_is_held_by_who_is_attached_though_the_session_is_over(daemon: Daemon) -> None:
    session, process = daemon.open(), Process()
    assert not daemon.registry.is_held(daemon.pool)
    daemon.attach(session, process)
    assert daemon.registry.is_held(daemon.pool)
    daemon.registry.close(session.id, session.secret, EPOCH, 0)
    assert process.released
    assert daemon.registry.is_held(daemon.pool)
    daemon.registry.holder_gone(session.id, process)
    assert not daemon.registry.is_held(daemon.pool)


def test_silence_revokes_the_id_but_frees_nothing_while_a_process_lives(daemon: Daemon) -> None:
    session, process = daemon.open(), Process()
    daemon.attach(session, process)
    daemon.lease(session)
    daemon.pass_seconds(LIVENESS.ttl_seconds + 1)
    assert daemon.lives(session)
    daemon.pass_seconds(1)
    assert not daemon.lives(session)
    assert (daemon.ledger.retired, daemon.ledger.free) == (2, PAGES - 2)
    assert [ended.id for ended in daemon.registry] == [session.id]
    daemon.pass_seconds(10_000)  # no time is ever proof
    assert daemon.ledger.retired == 2
    daemon.registry.holder_gone(session.id, process)
    assert daemon.ledger.free == PAGES
    assert not list(daemon.registry)


def test_processes_are_watched_for_as_long_as_their_end_matters(daemon: Daemon) -> None:
    """One process that attached to one session after another took two descriptors for each until it ended."""
    closed, reaped = daemon.open(), daemon.open()
    idle, zombie = Process(1), Process(1)
    daemon.attach(closed, idle)
    daemon.attach(reaped, zombie)
    daemon.registry.close(closed.id, closed.secret, EPOCH, 0)
    assert idle.released
    daemon.lease(reaped, launched=1)
    daemon.registry.close(reaped.id, reaped.secret, EPOCH, 0)
    assert (daemon.ledger.retired, zombie.released) == (2, False)
    daemon.registry.reap(reaped.id, "tester")
    assert (daemon.ledger.retired, zombie.released) == (0, True)


def test_all_processes_of_an_ended_session_must_be_gone(daemon: Daemon) -> None:
    session, scheduler, worker = daemon.open(), Process(1), Process(2)
    daemon.attach(session, scheduler, worker)
    daemon.lease(session)
    daemon.pass_seconds(LIVENESS.ttl_seconds + 2)
    daemon.registry.holder_gone(session.id, scheduler)
    assert daemon.ledger.retired == 2
    daemon.registry.holder_gone(session.id, worker)
    assert daemon.ledger.free == PAGES


def test_a_client_that_never_attached_has_mapped_nothing_and_leaves_nothing_retired(daemon: Daemon) -> None:
    session, stream = daemon.open(), RecordedStream()
    session.take_over(stream)
    daemon.lease(session, launched=3)
    session.leave(stream)
    daemon.pass_seconds(LIVENESS.grace_seconds + 1)
    assert daemon.lives(session)
    daemon.pass_seconds(1)
    assert not daemon.lives(session)
    assert daemon.ledger.free == PAGES


def test_an_open_stream_never_expires_and_its_end_begins_the_grace(daemon: Daemon) -> None:
    session, stream = daemon.open(), RecordedStream()
    session.take_over(stream)
    daemon.pass_seconds(1_000)
    assert session.silence.seconds == 0
    session.leave(stream)
    daemon.pass_seconds(LIVENESS.grace_seconds)
    session.take_over(stream)
    daemon.pass_seconds(1_000)
    assert daemon.lives(session)


def test_a_call_after_the_stream_has_ended_gives_the_whole_ttl(daemon: Daemon) -> None:
    session, stream = daemon.open(), RecordedStream()
    session.take_over(stream)
    session.leave(stream)
    daemon.pass_seconds(LIVENESS.grace_seconds)
    session.spoke()
    daemon.pass_seconds(LIVENESS.ttl_seconds)
    assert daemon.lives(session)


def test_an_older_stream_is_fenced_and_its_end_means_nothing(daemon: Daemon) -> None:
    session, older, newer = daemon.open(), RecordedStream(), RecordedStream()
    session.take_over(older)
    session.take_over(newer)
    assert (older.stopped, newer.stopped) == ([Reason.FENCED], [])
    session.leave(older)
    daemon.pass_seconds(1_000)
    assert daemon.lives(session)


def test_a_stall_of_the_daemon_ends_no_session(daemon: Daemon) -> None:
    session = daemon.open()
    daemon.pass_seconds(LIVENESS.ttl_seconds - 1)
    daemon.registry.tick(86_400.0)
    assert daemon.lives(session)
    session.spoke()
    daemon.pass_seconds(LIVENESS.ttl_seconds)
    assert daemon.lives(session)


@pytest.mark.parametrize(
    ("launched", "completed", "attached", "retired"),
    [(2, 2, True, 0), (2, 1, True, 2), (2, 1, False, 0), (0, 0, True, 0)],
)
def test_closing_frees_at_once_what_no_step_and_no_process_can_touch(
    daemon: Daemon, launched: int, completed: int, attached: bool, retired: int
) -> None:
    session, process = daemon.open(), Process()
    if attached:
        daemon.attach(session, process)
    daemon.lease(session, launched=launched)
    assert daemon.registry.close(session.id, session.secret, EPOCH, completed) == retired
    assert daemon.ledger.retired == retired
    assert daemon.registry.close(session.id, session.secret, EPOCH, completed) == retired
    daemon.registry.holder_gone(session.id, process)
    assert daemon.ledger.free == PAGES


def test_closing_what_never_was_is_ok_but_not_in_another_epoch(daemon: Daemon) -> None:
    assert daemon.registry.close(999, b"", EPOCH, 0) == 0
    assert refused(lambda: daemon.registry.close(999, b"", EPOCH + 1, 0)) is Reason.STALE_EPOCH


def test_reaping_needs_the_name_and_frees_what_a_living_process_holds(daemon: Daemon) -> None:
    session, process = daemon.open(), Process()
    daemon.attach(session, process)
    daemon.lease(session)
    assert refused(lambda: daemon.registry.reap(session.id, "another")) is Reason.BAD_FIELD
    assert daemon.lives(session)
    assert daemon.registry.reap(session.id, "tester") == 2
    assert daemon.ledger.free == PAGES
    assert refused(lambda: daemon.registry.reap(session.id, "tester")) is Reason.NO_SESSION
    daemon.registry.holder_gone(session.id, process)
    assert daemon.ledger.free == PAGES


def test_a_ledger_that_breaks_at_an_ending_stops_the_pool_and_nothing_else(daemon: Daemon) -> None:
    session, other = daemon.open(), daemon.open()
    daemon.lease(session)
    daemon.pool.cache.ledger._counts.clear()
    daemon.registry.close(session.id, session.secret, EPOCH, 0)
    assert daemon.pool.broken
    assert not daemon.lives(session)
    assert refused(daemon.open) is Reason.BROKEN_INVARIANT
    daemon.pass_seconds(LIVENESS.ttl_seconds + 2)
    assert not daemon.lives(other)
