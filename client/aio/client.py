"""A connection to a daemon, for schedulers whose loop is a coroutine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

import grpc
from grpc import aio

from radixd.client import convert
from radixd.client.aio.session import AsyncSession
from radixd.client.backoff import Backoff
from radixd.client.channel import CALL_SECONDS, OPTIONS, client_closed, not_opened, target
from radixd.client.convert import Dedup, Speculative
from radixd.client.errors import RadixError, from_rpc, is_passing
from radixd.client.opening import Opening
from radixd.client.results import OpenedSession
from radixd.v1 import session_pb2, session_pb2_grpc

Q = TypeVar("Q")
R = TypeVar("R")


class AsyncClient:
    """A connection to one daemon, for any number of sessions of one loop.

    A session's calls may wait for as long as its `liveness.grace_seconds` while no daemon answers; see `AsyncSession`.

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
                return convert.opened_session(await self._call(self._sessions.OpenSession, request))
            except RadixError as error:
                if not is_passing(error) or backoff.exhausted:
                    raise not_opened(self.target, error) from None
                await asyncio.sleep(backoff.delay(error))

    async def close_session(self, request: session_pb2.CloseSessionRequest) -> None:
        """The RPC alone."""
        await self._call(self._sessions.CloseSession, request)

    async def close(self) -> None:
        """Give up the connection. Close the sessions first: those still open are over, and keep their pages a while."""
        await self.channel.close()

    async def _call(self, method: aio.UnaryUnaryMultiCallable[Q, R], request: Q) -> R:
        try:
            return await method(request, timeout=CALL_SECONDS)
        except grpc.RpcError as failed:
            raise from_rpc(failed) from None
        except aio.UsageError:  # of a channel that was closed
            raise client_closed() from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
