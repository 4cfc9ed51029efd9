"""One open Schedule stream."""

import asyncio
from collections.abc import AsyncIterator
from typing import TypeAlias

import grpc

from radixd.server.cache.refusal import Refusal
from radixd.server.rpc.batch_run import BatchRun
from radixd.server.rpc.convert import bad_field
from radixd.server.rpc.dispatch import Dispatch
from radixd.server.rpc.methods import receiver
from radixd.server.rpc.status import abort
from radixd.server.sessions.limits import check_limit
from radixd.server.sessions.replies import Reply
from radixd.server.sessions.served_session import ServedSession
from radixd.v1 import cache_pb2

Requests = AsyncIterator[bytes]
Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"

receive = receiver(cache_pb2.Batch)


class ScheduleStream:
    """Reads a Batch, answers it, and only then reads the next: what a client does not read, it cannot pile up.

    Its first Batch says whose stream it is. It never owns a Batch, so it can end at any moment.
    """

    def __init__(self, dispatch: Dispatch, context: Context):
        self._dispatch = dispatch
        self._context = context
        self._session: ServedSession | None = None
        self._stopped: asyncio.Future[Refusal] = asyncio.get_running_loop().create_future()
        self._finishing: Refusal | None = None
        self._reading = True

    def stop(self, refusal: Refusal) -> None:
        """See Stream."""
        if not self._stopped.done():
            self._stopped.set_result(refusal)

    def finish(self, refusal: Refusal) -> None:
        """See Stream."""
        if self._reading:
            self.stop(refusal)
        else:
            self._finishing = refusal

    async def serve(self, requests: Requests) -> None:
        """Serves until the client half-closes or goes away, or somebody stops the stream."""
        self._dispatch.streams.add(self)
        pump = asyncio.create_task(self._pump(requests))
        try:
            await asyncio.wait((pump, self._stopped), return_when=asyncio.FIRST_COMPLETED)
            if pump.done() and (refusal := pump.result()) is not None:
                self.stop(refusal)
        finally:
            pump.cancel()
            self._dispatch.streams.discard(self)
            if self._session is not None:
                self._session.leave(self)
        if self._stopped.done():
            await abort(self._context, self._stopped.result())

    async def _pump(self, requests: Requests) -> Refusal | None:
        """Why the stream must end; None where the client has ended it."""
        try:
            async for wire in requests:
                self._reading = False
                reply = await self._answer(wire)
                if isinstance(reply, Refusal):
                    return reply
                await self._context.write(reply)
                if self._finishing is not None:
                    return self._finishing
                self._reading = True
        except Refusal as refusal:
            return refusal
        return None

    async def _answer(self, wire: bytes) -> Reply:
        if self._stopped.done():
            raise self._stopped.result()
        digest, batch = receive(wire)
        session = self._dispatch.admit(batch.call)
        check_limit("operations", len(batch.operations), session.limits.operations, "operations")
        if self._session is None:
            self._session = session
            session.take_over(self)
        elif session is not self._session:
            raise bad_field("call.session_id", f"this is the stream of session {self._session.id}; open another stream")
        return await self._dispatch.answer(session, batch.call, digest, BatchRun(session, batch))
