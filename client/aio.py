"""The asyncio client: for schedulers whose loop is a coroutine. Same words, same state, awaited.

Everything of a session runs on the loop that opened it. gRPC does not survive a fork: open clients after forking, and
let workers attach with a ticket.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, TypeVar

import grpc
from grpc import aio

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
from radixd.client.errors import NoSession, RadixError, SessionOver, StaleEpoch, Unreachable, from_rpc, is_passing
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


class AsyncBatch(BatchBuilder["AsyncLease"]):
    """Operations for one message."""

    def __init__(self, session: AsyncSession) -> None:
        super().__init__(session.exchange)
        self._session = session

    def send(self) -> asyncio.Future[Reply]:
        """Send it: await the reply. Several Batches may be in flight; replies come in order.

        The future raises what refused the whole Batch, the session's end, or Unreachable. What concerns one operation
        is told by that operation's `result`. Raises the session's end, LimitExceeded or Unreachable; nothing was sent.
        """
        return self._session.send(self)


def _verb(
    build: Callable[Concatenate[AsyncBatch, P], Operation[T]],
) -> Callable[Concatenate[AsyncSession, P], Awaitable[T]]:
    """A Batch of one, answered."""

    @wraps(build)
    async def call(session: AsyncSession, /, *args: P.args, **kwargs: P.kwargs) -> T:
        batch = session.batch()
        operation = build(batch, *args, **kwargs)
        await batch.send()
        return operation.result()

    return call


def _lease_verb(
    build: Callable[Concatenate[AsyncBatch, AsyncLease, P], Operation[T]],
) -> Callable[Concatenate[AsyncLease, P], Awaitable[T]]:
    """A Batch of one about this lease, answered."""

    @wraps(build)
    async def call(lease: AsyncLease, /, *args: P.args, **kwargs: P.kwargs) -> T:
        batch = lease.session.batch()
        operation = build(batch, lease, *args, **kwargs)
        await batch.send()
        return operation.result()

    return call


class AsyncLease(LeaseState):
    """One request. The verbs are Batches of one; see `AsyncBatch` for their arguments and for many at once."""

    def __init__(self, standing: Standing, session: AsyncSession) -> None:
        super().__init__(standing)
        self.session = session

    match = _lease_verb(AsyncBatch.match_lease)
    activate = _lease_verb(AsyncBatch.activate)
    allocate = _lease_verb(AsyncBatch.allocate)
    insert = _lease_verb(AsyncBatch.insert)
    free = _lease_verb(AsyncBatch.free)
    release = _lease_verb(AsyncBatch.release)
    move = _lease_verb(AsyncBatch.move)
    offload = _lease_verb(AsyncBatch.offload)
    restore = _lease_verb(AsyncBatch.restore)

    async def wait_loaded(self) -> None:
        """As `Lease.wait_loaded`. Bound it with `asyncio.timeout`."""
        while self.loading:
            await asyncio.sleep(COPY_POLL_SECONDS)
            await self.session.keep_alive()

    async def wait_saved(self) -> None:
        """As `Lease.wait_saved`. Bound it with `asyncio.timeout`."""
        while self.status is LeaseStatus.OFFLOADING:
            await asyncio.sleep(COPY_POLL_SECONDS)
            await self.session.keep_alive()


class AsyncSession(SessionState[AsyncLease]):
    """An open session; all of it belongs to one loop.

    It reconnects by itself and sends again what is unanswered. When it is over (SessionOver), `reopen` it; with
    `on_restart` that happens by itself after a restart of the daemon or an expiry.
    """

    def __init__(
        self,
        client: AsyncClient,
        opening: Opening,
        opened: OpenedSession,
        on_restart: Callable[[AsyncSession], None] | None,
    ) -> None:
        super().__init__(opening, opened, lambda standing: AsyncLease(standing, self))
        self._client = client
        self._on_restart = on_restart
        self._stream: _Stream | None = None
        self._tasks: list[asyncio.Task[None]] = []

    match = _verb(AsyncBatch.match)
    match_lease = _verb(AsyncBatch.match_lease)
    acquire = _verb(AsyncBatch.acquire)
    wait = _verb(AsyncBatch.wait)
    activate = _verb(AsyncBatch.activate)
    offload = _verb(AsyncBatch.offload)
    restore = _verb(AsyncBatch.restore)

    def batch(self) -> AsyncBatch:
        """An empty Batch for this session."""
        return AsyncBatch(self)

    def send(self, batch: AsyncBatch) -> asyncio.Future[Reply]:
        """As `AsyncBatch.send`."""
        self.exchange.pause()
        return self._submit(batch)

    def step(self, *, launched: int | None = None, completed: int | None = None) -> None:
        """Report steps enqueued and steps seen finished on every rank; every later Batch carries both.

        This is the step boundary: table patches that have come are applied now, so read `lease.pages` for step
        launched + 1 after this. A synchronous engine reports both equal, or never calls it.
        """
        self.exchange.step(launched, completed)

    async def keep_alive(self) -> Occupancy:
        """Report the step counts now and read the ledger: an empty Batch."""
        return (await self.batch().send()).device

    async def attach(self) -> Attachment:
        """Map the pool into this process, once; `reopen` maps the new one. Needs torch: `radixd[attach]`."""
        return await asyncio.to_thread(self._attach, self.opened)

    async def reopen(self, patience: float = 0.0) -> None:
        """Open a session in this one's place, and attach again if it was attached. The old leases stay void.

        Drop tensors taken from the old attachment before. Raises as `AsyncClient.open_session` does.
        """
        attached = await self._leave(NoSession("the session was reopened: its earlier leases are gone"))
        await self._replace(await self._client.open(self._opening, patience), attached=attached)
        self._start_tasks()

    async def close(self) -> None:
        """End the session: its leases go back, what they published stays. Drop the pool's tensors first. Idempotent."""
        await self._leave(NoSession("the session was closed"))

    async def start(self) -> Self:
        """Begin the conversation: what `AsyncClient.open_session` does last."""
        await asyncio.to_thread(self._join, self.opened, attached=False)
        self._start_tasks()
        return self

    async def _leave(self, error: NoSession) -> bool:
        """End the session here and at the daemon: whether the pool was mapped."""
        with suppress(RadixError):
            if self.exchange.has_news:
                # The daemon must not take a step for finished that it has never heard of.
                await self.keep_alive()
        await self._stop_tasks()
        was_over = self.over is not None
        self._void(error)
        attached = self._detach()
        if not was_over:
            with suppress(RadixError):
                await self._client.close_session(self._close_request())
        return attached

    async def _replace(self, opened: OpenedSession, *, attached: bool) -> None:
        await asyncio.to_thread(self._join, opened, attached=attached)
        self.exchange = Exchange(opened, self._lease_class)

    def _submit(self, batch: AsyncBatch) -> asyncio.Future[Reply]:
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        data = self.exchange.submit(batch, future)
        if self._stream is not None:
            self._stream.send(data)
        return future

    def _start_tasks(self) -> None:
        self._tasks = [
            asyncio.create_task(self._converse(), name=f"radixd-{self.session_id}-replies"),
            asyncio.create_task(self._report(), name=f"radixd-{self.session_id}-idle"),
        ]

    async def _stop_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _report(self) -> None:
        """The idle task: tell the daemon of steps that no Batch has told."""
        while True:
            await asyncio.sleep(IDLE_REPORT_SECONDS)
            with suppress(RadixError):
                if self.exchange.has_news and self._stream is not None:
                    self._submit(self.batch())

    async def _converse(self) -> None:
        """The reply task: one stream after another until the session is over."""
        backoff = Backoff(self.liveness.grace_seconds)
        while True:
            answered, error = await self._run_stream()
            if answered:
                backoff = Backoff(self.liveness.grace_seconds)
            if isinstance(error, SessionOver):
                self._void(error)
                if not await self._come_back(error):
                    return
                continue
            self.exchange.stream_ended(error)
            if backoff.exhausted:
                self.exchange.despair(no_daemon(self._client.target, error))
            await asyncio.sleep(backoff.delay(error))

    async def _run_stream(self) -> tuple[bool, RadixError]:
        """One stream from its opening to its end: whether anything was answered, and why it ended."""
        stream = _Stream(self._client.channel)
        unanswered = self.exchange.unanswered()
        for data in unanswered:
            stream.send(data)
        self._stream = stream
        if not unanswered:
            # The daemon knows whose stream this is from its first Batch.
            self._submit(self.batch())
        answered = False
        try:
            async for message in stream.replies:
                self.exchange.receive(message)
                answered = True
            return answered, Unreachable("the daemon ended the stream")
        except grpc.RpcError as error:
            return answered, from_rpc(error)
        except Exception as bug:
            # A reply that makes no sense: an end that everyone sees, rather than a task that is gone.
            return answered, SessionOver(f"the daemon's reply was not understood: {bug!r}", reason="CLIENT_BUG")
        finally:
            self._stream = None
            stream.cancel()

    async def _come_back(self, error: SessionOver) -> bool:
        """Reopen after a restart or an expiry, if that was asked for: whether it is open again."""
        if self._on_restart is None or not isinstance(error, StaleEpoch | NoSession):
            return False
        attached, backoff = self._detach(), Backoff(0.0)
        while True:
            try:
                opened = await self._client.open(self._opening, patience=0.0)
                await self._replace(opened, attached=attached)
            except RadixError as refused:
                if not is_passing(refused):
                    return False
                await asyncio.sleep(backoff.delay(refused))
                continue
            self._on_restart(self)
            return True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _Stream:
    """One Schedule call. Opened at once; sending never waits."""

    def __init__(self, channel: aio.Channel) -> None:
        self._outbox: asyncio.Queue[bytes] = asyncio.Queue()
        method: aio.StreamStreamMultiCallable[bytes, cache_pb2.BatchReply] = channel.stream_stream(
            SCHEDULE, request_serializer=None, response_deserializer=cache_pb2.BatchReply.FromString
        )
        self._call = method(self._requests())
        self.replies: AsyncIterator[cache_pb2.BatchReply] = aiter(self._call)

    def send(self, data: bytes) -> None:
        self._outbox.put_nowait(data)

    def cancel(self) -> None:
        self._call.cancel()

    async def _requests(self) -> AsyncIterator[bytes]:
        while True:
            yield await self._outbox.get()


class AsyncClient:
    """A connection to one daemon, for any number of sessions of one loop.

    Args:
        socket: the daemon's gRPC socket, or host:port. None: $XDG_RUNTIME_DIR/radixd/radixd.sock, else
            /run/radixd/radixd.sock, which is the daemon's own default.
    """

    def __init__(self, socket: str | os.PathLike[str] | None = None) -> None:
        self.target = target(socket)
        self.channel = aio.insecure_channel(self.target, options=OPTIONS)
        self._sessions = session_pb2_grpc.SessionsStub(self.channel)

    async def open_session(
        self,
        *,
        model: bytes,
        pool: str = "",
        name: str = "",
        fingerprint: bytes = b"",
        dedup: Dedup = "keep",
        speculative: Speculative | None = None,
        patience: float = 0.0,
        on_restart: Callable[[AsyncSession], None] | None = None,
    ) -> AsyncSession:
        """Open a session. Arguments and errors as in `Client.open_session`; `on_restart` is called on the loop."""
        opening = Opening(pool, name, model, fingerprint, dedup, speculative)
        return await AsyncSession(self, opening, await self.open(opening, patience), on_restart).start()

    async def open(self, opening: Opening, patience: float) -> OpenedSession:
        """The RPC alone, tried until `patience` is used up while the daemon is out of reach or starting."""
        request, backoff = opening.request(), Backoff(patience)
        while True:
            try:
                return convert.opened_session(await self._sessions.OpenSession(request, timeout=CALL_SECONDS))
            except grpc.RpcError as failed:
                error = from_rpc(failed)
            if not is_passing(error) or backoff.exhausted:
                raise no_daemon(self.target, error) if isinstance(error, Unreachable) else error
            await asyncio.sleep(backoff.delay(error))

    async def close_session(self, request: session_pb2.CloseSessionRequest) -> None:
        """The RPC alone."""
        try:
            await self._sessions.CloseSession(request, timeout=CALL_SECONDS)
        except grpc.RpcError as failed:
            raise from_rpc(failed) from None

    async def close(self) -> None:
        """Give up the connection. Close the sessions first."""
        await self.channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
