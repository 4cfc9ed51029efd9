"""An open session for a scheduler whose loop is a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

import grpc

from radixd.client.backoff import Backoff
from radixd.client.channel import IDLE_REPORT_SECONDS, client_closed, no_daemon
from radixd.client.errors import NoSession, RadixError, SessionOver, StaleEpoch, Unreachable, from_rpc, is_passing
from radixd.client.exchange import Exchange
from radixd.client.opening import Opening
from radixd.client.results import Occupancy, OpenedSession, Reply
from radixd.client.session import SessionState
from radixd.client.sync.batch import Batch, verb
from radixd.client.sync.lease import Lease
from radixd.client.sync.stream import Stream

if TYPE_CHECKING:
    from radixd.client.attach import Attachment
    from radixd.client.sync.client import Client


class Session(SessionState[Lease]):
    """An open session. Batches may be sent from several threads; steps and leases are one engine thread's business.

    It reconnects by itself and sends again what is unanswered. When it is over (SessionOver), `reopen` it; with
    `on_restart` that happens by itself after a restart of the daemon or an expiry.

    While no daemon answers, a call blocks for up to `liveness.grace_seconds` before it raises Unreachable: that long
    the daemon keeps the session, so the stream may come back and the reply with it. Nothing is given up before.

    A call that is interrupted, or that raises Unreachable, has given up the lease that it would have opened: it is
    released as soon as the daemon's answer is known.
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
        self._stream: Stream | None = None
        self._join(opened)
        self._threads = self._start_threads()

    match = verb(Batch.match)
    match_lease = verb(Batch.match_lease)
    acquire = verb(Batch.acquire)
    wait = verb(Batch.wait)
    activate = verb(Batch.activate)
    offload = verb(Batch.offload)
    restore = verb(Batch.restore)

    def batch(self) -> Batch:
        """An empty Batch for this session."""
        return Batch(self)

    def send(self, batch: Batch) -> Future[Reply]:
        """As `Batch.send`."""
        with self._lock:
            self.exchange.pause()
            return self._submit(batch)

    def abandon(self, batch: Batch) -> None:
        """As `Batch.abandon`."""
        with self._lock:
            self.exchange.abandon(batch)
            self._give_back()

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
        """Map the pool into this process, once; `reopen` maps the new one. Needs torch (extra `attach`)."""
        return self._attach(self.opened)

    def reopen(self, patience: float = 0.0) -> None:
        """Open a session in this one's place, and attach again if it was attached. The old leases stay void.

        Drop tensors taken from the old attachment before. Raises as `Client.open_session` does;
        the session is over then, and may be reopened later. Not in `on_restart`, which finds it open.
        """
        if threading.current_thread() in self._threads:
            raise RuntimeError("on_restart is called with the session open again: it cannot be reopened there")
        self._leave(NoSession("the session was reopened: its earlier leases are gone"))
        self._replace(self._client.open(self._opening, patience))
        self._threads = self._start_threads()

    def close(self) -> None:
        """End the session: its leases go back, what they published stays. Drop the pool's tensors first. Idempotent."""
        self._leave(NoSession("the session was closed"))
        self._attaches = False

    def _leave(self, error: NoSession) -> None:
        """End the session here and at the daemon."""
        with suppress(RadixError):
            if self.exchange.has_news and threading.current_thread() not in self._threads:
                # The daemon must not take a step for finished that it has never heard of.
                self.keep_alive()
        self._stop_threads()
        was_over = self.over is not None
        self._void(error)
        self._detach()
        if not was_over:
            with suppress(RadixError):
                self._client.close_session(self._close_request())

    def _replace(self, opened: OpenedSession) -> None:
        self._join(opened)
        with self._lock:
            self.exchange = Exchange(opened, self._lease_class)

    def _submit(self, batch: Batch) -> Future[Reply]:
        future: Future[Reply] = Future()
        future.set_running_or_notify_cancel()
        data = self.exchange.submit(batch, future)
        if self._stream is not None:
            self._stream.send(data)
        return future

    def _give_back(self) -> None:
        data = self.exchange.give_back()
        if data is not None and self._stream is not None:
            self._stream.send(data)

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
            if thread is not threading.current_thread():
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
        try:
            stream = Stream(self._client.channel)
        except ValueError:  # gRPC's, of a channel that was closed
            return False, client_closed()
        with self._lock:
            unanswered = self.exchange.unanswered()
            for data in unanswered:
                stream.send(data)
            self._stream = stream
            if self._closing.is_set():
                stream.cancel()  # whoever closes the session has found none to cancel
            if not unanswered:
                # The daemon knows whose stream this is from its first Batch.
                self._submit(Batch(self))
        answered = False
        try:
            for message in stream.replies:
                with self._lock:
                    self.exchange.receive(message)
                    self._give_back()
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
        self._detach()
        backoff = Backoff(0.0)
        while not self._closing.is_set():
            try:
                self._replace(self._client.open(self._opening, patience=0.0))
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
