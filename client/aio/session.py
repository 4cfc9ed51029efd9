"""An open session for a scheduler whose loop is a coroutine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

import grpc
from grpc import aio

from radixd.client.aio.batch import AsyncBatch, verb
from radixd.client.aio.lease import AsyncLease
from radixd.client.aio.stream import Stream
from radixd.client.backoff import Backoff
from radixd.client.channel import IDLE_REPORT_SECONDS, client_closed, no_daemon
from radixd.client.errors import NoSession, RadixError, SessionOver, StaleEpoch, Unreachable, from_rpc, is_passing
from radixd.client.exchange import Exchange
from radixd.client.opening import Opening
from radixd.client.results import Occupancy, OpenedSession, Reply
from radixd.client.session import SessionState

if TYPE_CHECKING:
    from radixd.client.aio.client import AsyncClient
    from radixd.client.attach import Attachment


class AsyncSession(SessionState[AsyncLease]):
    """An open session; all of it belongs to one loop.

    It reconnects by itself and sends again what is unanswered. When it is over (SessionOver), `reopen` it; with
    `on_restart` that happens by itself after a restart of the daemon or an expiry.

    While no daemon answers, a call waits for up to `liveness.grace_seconds` before it raises Unreachable: that long the
    daemon keeps the session, so the stream may come back and the reply with it. Nothing is given up before.

    A call that is cancelled, or that raises Unreachable, has given up the lease that it would have opened: it is
    released as soon as the daemon's answer is known.
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
        self._stream: Stream | None = None
        self._tasks: list[asyncio.Task[None]] = []

    match = verb(AsyncBatch.match)
    match_lease = verb(AsyncBatch.match_lease)
    acquire = verb(AsyncBatch.acquire)
    wait = verb(AsyncBatch.wait)
    activate = verb(AsyncBatch.activate)
    offload = verb(AsyncBatch.offload)
    restore = verb(AsyncBatch.restore)

    def batch(self) -> AsyncBatch:
        """An empty Batch for this session."""
        return AsyncBatch(self)

    def send(self, batch: AsyncBatch) -> asyncio.Future[Reply]:
        """As `AsyncBatch.send`."""
        self.exchange.pause()
        future = self._submit(batch)
        future.add_done_callback(lambda ended: self.abandon(batch) if ended.cancelled() else None)
        return future

    def abandon(self, batch: AsyncBatch) -> None:
        """As `Batch.abandon`."""
        self.exchange.abandon(batch)
        self._give_back()

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
        """Map the pool into this process, once; `reopen` maps the new one. Needs torch (extra `attach`)."""
        return await asyncio.to_thread(self._attach, self.opened)

    async def reopen(self, patience: float = 0.0) -> None:
        """Open a session in this one's place, and attach again if it was attached. The old leases stay void.

        Drop tensors taken from the old attachment before. Raises as `AsyncClient.open_session` does;
        the session is over then, and may be reopened later.
        """
        await self._leave(NoSession("the session was reopened: its earlier leases are gone"))
        await self._replace(await self._client.open(self._opening, patience))
        self._start_tasks()

    async def close(self) -> None:
        """End the session: its leases go back, what they published stays. Drop the pool's tensors first. Idempotent."""
        await self._leave(NoSession("the session was closed"))
        self._attaches = False

    async def start(self) -> Self:
        """Begin the conversation: what `AsyncClient.open_session` does last."""
        await asyncio.to_thread(self._join, self.opened)
        self._start_tasks()
        return self

    async def _leave(self, error: NoSession) -> None:
        """End the session here and at the daemon."""
        with suppress(RadixError):
            if self.exchange.has_news:
                # The daemon must not take a step for finished that it has never heard of.
                await self.keep_alive()
        await self._stop_tasks()
        was_over = self.over is not None
        self._void(error)
        self._detach()
        if not was_over:
            with suppress(RadixError):
                await self._client.close_session(self._close_request())

    async def _replace(self, opened: OpenedSession) -> None:
        await asyncio.to_thread(self._join, opened)
        self.exchange = Exchange(opened, self._lease_class)

    def _submit(self, batch: AsyncBatch) -> asyncio.Future[Reply]:
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        data = self.exchange.submit(batch, future)
        if self._stream is not None:
            self._stream.send(data)
        return future

    def _give_back(self) -> None:
        data = self.exchange.give_back()
        if data is not None and self._stream is not None:
            self._stream.send(data)

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
        try:
            stream = Stream(self._client.channel)
        except aio.UsageError:  # of a channel that was closed
            return False, client_closed()
        unanswered = self.exchange.unanswered()
        for data in unanswered:
            stream.send(data)
        self._stream = stream
        if not unanswered:
            # The daemon knows whose stream this is from its first Batch.
            self._submit(self.batch())
        answered = False
        try:
            while (message := await stream.read()) is not None:
                self.exchange.receive(message)
                self._give_back()
                answered = True
            return answered, Unreachable("the daemon ended the stream")
        except grpc.RpcError as error:
            return answered, from_rpc(error)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return answered, client_closed()  # which ends its calls as if they had been cancelled
        except Exception as bug:
            # A reply that makes no sense: an end that everyone sees, rather than a task that is gone.
            return answered, SessionOver(f"the daemon's reply was not understood: {bug!r}", reason="CLIENT_BUG")
        finally:
            self._stream = None
            await stream.close()

    async def _come_back(self, error: SessionOver) -> bool:
        """Reopen after a restart or an expiry, if that was asked for: whether it is open again."""
        if self._on_restart is None or not isinstance(error, StaleEpoch | NoSession):
            return False
        self._detach()
        backoff = Backoff(0.0)
        while True:
            try:
                await self._replace(await self._client.open(self._opening, patience=0.0))
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
