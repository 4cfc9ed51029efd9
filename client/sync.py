"""The blocking client: for schedulers whose loop is a thread.

A session runs two threads of its own beside gRPC's: one reads replies and reconnects, one reports steps while the
engine is idle. gRPC does not survive a fork: open clients after forking, and let workers attach with a ticket.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import wraps
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, TypeVar

import grpc

from radixd.client import convert
from radixd.client.backoff import Backoff
from radixd.client.batch import BatchBuilder
from radixd.client.channel import (
    CALL_SECONDS,
    COPY_POLL_SECONDS,
    IDLE_REPORT_SECONDS,
    OPTIONS,
    SCHEDULE,
    no_daemon,
    target,
)
from radixd.client.convert import Dedup, Speculative
from radixd.client.errors import (
    NoSession,
    RadixError,
    SessionOver,
    StaleEpoch,
    Unreachable,
    from_rpc,
    is_passing,
)
from radixd.client.exchange import Exchange
from radixd.client.lease import LeaseState, LeaseStatus, Standing
from radixd.client.opening import Opening
from radixd.client.operation import Operation
from radixd.client.results import Occupancy, OpenedSession, Reply
from radixd.client.session import SessionState
from radixd.v1 import cache_pb2, session_pb2, session_pb2_grpc

if TYPE_CHECKING:
    from radixd.client.attach import Attachment

P = ParamSpec("P")
T = TypeVar("T")


class Batch(BatchBuilder["Lease"]):
    """Operations for one message."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.exchange)
        self._session = session

    def send(self) -> Future[Reply]:
        """Send it: a future of the reply. Several Batches may be in flight; replies come in order.

        The future raises what refused the whole Batch, the session's end, or Unreachable. What concerns one operation
        is told by that operation's `result`. Raises the session's end, LimitExceeded or Unreachable; nothing was sent.
        """
        return self._session.send(self)


def _verb(build: Callable[Concatenate[Batch, P], Operation[T]]) -> Callable[Concatenate[Session, P], T]:
    """A Batch of one, answered."""

    @wraps(build)
    def call(session: Session, /, *args: P.args, **kwargs: P.kwargs) -> T:
        batch = session.batch()
        operation = build(batch, *args, **kwargs)
        batch.send().result()
        return operation.result()

    return call


def _lease_verb(
    build: Callable[Concatenate[Batch, Lease, P], Operation[T]],
) -> Callable[Concatenate[Lease, P], T]:
    """A Batch of one about this lease, answered."""

    @wraps(build)
    def call(lease: Lease, /, *args: P.args, **kwargs: P.kwargs) -> T:
        batch = lease.session.batch()
        operation = build(batch, lease, *args, **kwargs)
        batch.send().result()
        return operation.result()

    return call


class Lease(LeaseState):
    """One request. The verbs are Batches of one; see `Batch` for their arguments and for many at once."""

    def __init__(self, standing: Standing, session: Session) -> None:
        super().__init__(standing)
        self.session = session

    match = _lease_verb(Batch.match_lease)
    activate = _lease_verb(Batch.activate)
    allocate = _lease_verb(Batch.allocate)
    insert = _lease_verb(Batch.insert)
    free = _lease_verb(Batch.free)
    release = _lease_verb(Batch.release)
    move = _lease_verb(Batch.move)
    offload = _lease_verb(Batch.offload)
    restore = _lease_verb(Batch.restore)

    def wait_loaded(self, timeout: float) -> None:
        """Send empty Batches until `loading` is empty. For scripts; an engine has other requests to run meanwhile.

        Raises TimeoutError after `timeout` seconds; the lease is as it was.
        """
        self._wait_while(lambda: bool(self.loading), timeout)

    def wait_saved(self, timeout: float) -> None:
        """As `wait_loaded`, until an Offload has ended: the lease is offloaded then, or active where it failed."""
        self._wait_while(lambda: self.status is LeaseStatus.OFFLOADING, timeout)

    def _wait_while(self, busy: Callable[[], bool], timeout: float) -> None:
        end = time.monotonic() + timeout
        while busy():
            if time.monotonic() >= end:
                raise TimeoutError(f"lease {self.lease_id} is still {self.status} after {timeout:g} s")
            time.sleep(COPY_POLL_SECONDS)
            self.session.keep_alive()


class Session(SessionState[Lease]):
    """An open session. Batches may be sent from several threads; steps and leases are one engine thread's business.

    It reconnects by itself and sends again what is unanswered. When it is over (SessionOver), `reopen` it; with
    `on_restart` that happens by itself after a restart of the daemon or an expiry.
    """

    def __init__(
        self,
        client: Client,
        opening: Opening,
        opened: OpenedSession,
        on_restart: Callable[[Session], None] | None,
    ) -> None:
        super().__init__(opening, opened, lambda standing: Lease(standing, self))
        self._client = client
        self._on_restart = on_restart
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._stream: _Stream | None = None
        self._join(opened, attached=False)
        self._threads = self._start_threads()

    match = _verb(Batch.match)
    match_lease = _verb(Batch.match_lease)
    acquire = _verb(Batch.acquire)
    wait = _verb(Batch.wait)
    activate = _verb(Batch.activate)
    offload = _verb(Batch.offload)
    restore = _verb(Batch.restore)

    def batch(self) -> Batch:
        """An empty Batch for this session."""
        return Batch(self)

    def send(self, batch: Batch) -> Future[Reply]:
        """As `Batch.send`."""
        with self._lock:
            self.exchange.pause()
            return self._submit(batch)

    def step(self, *, launched: int | None = None, completed: int | None = None) -> None:
        """Report steps enqueued and steps seen finished on every rank; every later Batch carries both.

        This is the step boundary: table patches that have come are applied now, so read `lease.pages` for step
        launched + 1 after this. A synchronous engine reports both equal, or never calls it.
        """
        with self._lock:
            self.exchange.step(launched, completed)

    def reconnect(self) -> None:
        """Drop the stream and come back on a new one, as after a broken connection; the unanswered is sent again."""
        with self._lock:
            if self._stream is not None:
                self._stream.cancel()

    def keep_alive(self) -> Occupancy:
        """Report the step counts now and read the ledger: an empty Batch."""
        return self.batch().send().result().device

    def attach(self) -> Attachment:
        """Map the pool into this process, once; `reopen` maps the new one. Needs torch: `radixd[attach]`."""
        return self._attach(self.opened)

    def reopen(self, patience: float = 0.0) -> None:
        """Open a session in this one's place, and attach again if it was attached. The old leases stay void.

        Drop tensors taken from the old attachment before. Raises as `Client.open_session` does.
        """
        attached = self._leave(NoSession("the session was reopened: its earlier leases are gone"))
        self._replace(self._client.open(self._opening, patience), attached=attached)
        self._threads = self._start_threads()

    def close(self) -> None:
        """End the session: its leases go back, what they published stays. Drop the pool's tensors first. Idempotent."""
        self._leave(NoSession("the session was closed"))

    def _leave(self, error: NoSession) -> bool:
        """End the session here and at the daemon: whether the pool was mapped."""
        with suppress(RadixError):
            if self.exchange.has_news:
                # The daemon must not take a step for finished that it has never heard of.
                self.keep_alive()
        self._stop_threads()
        was_over = self.over is not None
        self._void(error)
        attached = self._detach()
        if not was_over:
            with suppress(RadixError):
                self._client.close_session(self._close_request())
        return attached

    def _replace(self, opened: OpenedSession, *, attached: bool) -> None:
        self._join(opened, attached=attached)
        with self._lock:
            self.exchange = Exchange(opened, self._lease_class)

    def _submit(self, batch: Batch) -> Future[Reply]:
        future: Future[Reply] = Future()
        future.set_running_or_notify_cancel()
        data = self.exchange.submit(batch, future)
        if self._stream is not None:
            self._stream.send(data)
        return future

    def _start_threads(self) -> list[threading.Thread]:
        self._closing.clear()
        threads = [
            threading.Thread(target=self._converse, name=f"radixd-{self.session_id}-replies", daemon=True),
            threading.Thread(target=self._report, name=f"radixd-{self.session_id}-idle", daemon=True),
        ]
        for thread in threads:
            thread.start()
        return threads

    def _stop_threads(self) -> None:
        self._closing.set()
        with self._lock:
            if self._stream is not None:
                self._stream.cancel()
        for thread in self._threads:
            thread.join()

    def _report(self) -> None:
        """The idle thread: tell the daemon of steps that no Batch has told."""
        while not self._closing.wait(IDLE_REPORT_SECONDS):
            with suppress(RadixError), self._lock:
                if self.exchange.has_news and self._stream is not None:
                    self._submit(Batch(self))

    def _converse(self) -> None:
        """The reply thread: one stream after another until the session is over."""
        backoff = Backoff(self.liveness.grace_seconds)
        while not self._closing.is_set():
            answered, error = self._run_stream()
            if answered:
                backoff = Backoff(self.liveness.grace_seconds)
            if self._closing.is_set():
                return
            if isinstance(error, SessionOver):
                with self._lock:
                    self._void(error)
                if not self._come_back(error):
                    return
                continue
            with self._lock:
                self.exchange.stream_ended(error)
                if backoff.exhausted:
                    self.exchange.despair(no_daemon(self._client.target, error))
            self._closing.wait(backoff.delay(error))

    def _run_stream(self) -> tuple[bool, RadixError]:
        """One stream from its opening to its end: whether anything was answered, and why it ended."""
        stream = _Stream(self._client.channel)
        with self._lock:
            unanswered = self.exchange.unanswered()
            for data in unanswered:
                stream.send(data)
            self._stream = stream
            if not unanswered:
                # The daemon knows whose stream this is from its first Batch.
                self._submit(Batch(self))
        answered = False
        try:
            for message in stream.replies:
                with self._lock:
                    self.exchange.receive(message)
                answered = True
            return answered, Unreachable("the daemon ended the stream")
        except grpc.RpcError as error:
            return answered, from_rpc(error)
        except Exception as bug:
            # A reply that makes no sense: an end that everyone sees, rather than a thread that is gone.
            return answered, SessionOver(f"the daemon's reply was not understood: {bug!r}", reason="CLIENT_BUG")
        finally:
            with self._lock:
                self._stream = None
            stream.cancel()

    def _come_back(self, error: SessionOver) -> bool:
        """Reopen after a restart or an expiry, if that was asked for: whether it is open again."""
        if self._on_restart is None or not isinstance(error, StaleEpoch | NoSession):
            return False
        attached, backoff = self._detach(), Backoff(0.0)
        while not self._closing.is_set():
            try:
                opened = self._client.open(self._opening, patience=0.0)
                self._replace(opened, attached=attached)
            except RadixError as refused:
                if not is_passing(refused):
                    return False
                self._closing.wait(backoff.delay(refused))
                continue
            self._on_restart(self)
            return True
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Stream:
    """One Schedule call. Opened at once; sending never blocks."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._outbox: SimpleQueue[bytes | None] = SimpleQueue()
        method: grpc.StreamStreamMultiCallable[bytes, cache_pb2.BatchReply] = channel.stream_stream(
            SCHEDULE, request_serializer=None, response_deserializer=cache_pb2.BatchReply.FromString
        )
        self._call = method(iter(self._outbox.get, None))
        self.replies: Iterator[cache_pb2.BatchReply] = self._call

    def send(self, data: bytes) -> None:
        self._outbox.put(data)

    def cancel(self) -> None:
        self._outbox.put(None)
        self._call.cancel()


class Client:
    """A connection to one daemon, for any number of sessions. Thread-safe.

    Args:
        socket: the daemon's gRPC socket, or host:port. None: $XDG_RUNTIME_DIR/radixd/radixd.sock, else
            /run/radixd/radixd.sock, which is the daemon's own default.
    """

    def __init__(self, socket: str | os.PathLike[str] | None = None) -> None:
        self.target = target(socket)
        self.channel = grpc.insecure_channel(self.target, options=OPTIONS)
        self._sessions = session_pb2_grpc.SessionsStub(self.channel)

    def open_session(
        self,
        *,
        model: bytes,
        pool: str = "",
        name: str = "",
        fingerprint: bytes = b"",
        dedup: Dedup = "keep",
        speculative: Speculative | None = None,
        patience: float = 0.0,
        on_restart: Callable[[Session], None] | None = None,
    ) -> Session:
        """Open a session.

        Args:
            model: digest of checkpoint, weights version and KV writer format, 1 to 64 bytes. Part of every namespace.
            pool: empty: the daemon's only pool.
            name: a label for people.
            fingerprint: of the geometry that the engine writes, 16 bytes; empty: the pool's, on trust.
            dedup: "keep": page tables are append-only. "patch": they get canonical page ids at step boundaries.
            speculative: must be the pool's mode; None takes the pool's.
            patience: seconds to wait for a daemon that is not there yet, or still starting.
            on_restart: reopen by itself when the daemon has restarted, then call this, on a thread of the session's.

        Raises NoPool, GeometryMismatch, BadField, LimitExceeded, Starting, Draining; Unreachable without a daemon.
        """
        opening = Opening(pool, name, model, fingerprint, dedup, speculative)
        return Session(self, opening, self.open(opening, patience), on_restart)

    def open(self, opening: Opening, patience: float) -> OpenedSession:
        """The RPC alone, tried until `patience` is used up while the daemon is out of reach or starting."""
        request, backoff, wait = opening.request(), Backoff(patience), threading.Event().wait
        while True:
            try:
                return convert.opened_session(self._sessions.OpenSession(request, timeout=CALL_SECONDS))
            except grpc.RpcError as failed:
                error = from_rpc(failed)
            if not is_passing(error) or backoff.exhausted:
                raise no_daemon(self.target, error) if isinstance(error, Unreachable) else error
            wait(backoff.delay(error))

    def close_session(self, request: session_pb2.CloseSessionRequest) -> None:
        """The RPC alone."""
        try:
            self._sessions.CloseSession(request, timeout=CALL_SECONDS)
        except grpc.RpcError as failed:
            raise from_rpc(failed) from None

    def close(self) -> None:
        """Give up the connection. Close the sessions first."""
        self.channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
