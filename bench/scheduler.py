"""One scheduler of the gRPC part: what it sends to the daemon, and the same to the echo."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self

import grpc
from google.protobuf.message import Message

from bench.calls import OpenSession, ResponseT, Stream, UnaryCall, open_channel, open_request
from bench.echo_server import SET_STREAM_REPLY, SET_UNARY_REPLY, STREAM, UNARY
from radixd.v1 import cache_pb2 as pb
from radixd.v1 import session_pb2_grpc

Sample = Callable[[], Awaitable[int]]
"""Nanoseconds of one call."""


class Scheduler:
    """A session, its stream and unary calls to the daemon, and the like to the echo, each over its own connection.

    `unary` and `batch` give two ways to take a sample: by the daemon, and by the echo, which gets the same bytes and
    gives the bytes of the daemon's first reply.
    """

    def __init__(self, daemon: grpc.aio.Channel, echo: grpc.aio.Channel, session: OpenSession) -> None:
        self._daemon = daemon
        self._echo = echo
        self._session = session
        self._stream = Stream(daemon)
        self._echo_stream = Stream(echo, STREAM)
        self._leases: list[int] = []  # opened by samples, to be released

    @classmethod
    async def connect(cls, daemon_socket: Path, echo_socket: Path) -> Self:
        """A scheduler with a new session."""
        daemon, echo = open_channel(daemon_socket), open_channel(echo_socket)
        opened = await session_pb2_grpc.SessionsStub(daemon).OpenSession(open_request())
        return cls(daemon, echo, OpenSession(opened))

    async def ask(self, *operations: pb.Operation) -> pb.BatchReply:
        """The reply to a Batch."""
        return (await self._exchange(pb.Batch(operations=operations)))[1]

    async def publish(self, tokens: bytes) -> None:
        """Caches the whole pages of `tokens`."""
        release = pb.Release(lease=pb.LeaseRef(opened_by=0), publish_to=len(tokens) // 4)
        await self.ask(pb.Operation(acquire=pb.Acquire(tokens=tokens)), pb.Operation(release=release))

    async def release(self) -> None:
        """Releases what samples have acquired; publishes nothing."""
        if self._leases:
            releases = [pb.Release(lease=pb.LeaseRef(id=lease)) for lease in self._leases]
            self._leases.clear()
            await self.ask(*(pb.Operation(release=release) for release in releases))

    async def unary(
        self, path: str, request: pb.MatchRequest | pb.AcquireRequest, response_type: type[ResponseT]
    ) -> tuple[Sample, Sample]:
        """Samples of a unary verb."""
        call = UnaryCall(self._daemon, path, response_type)
        echo = UnaryCall(self._echo, UNARY, response_type)

        async def exchange() -> tuple[int, ResponseT]:
            self._session.stamp(request.call)
            took, response = await call.timed(request)
            if isinstance(response, pb.AcquireResponse):
                self._leases.append(response.result.lease_id)
            return took, response

        async def by_daemon() -> int:
            return (await exchange())[0]

        async def by_echo() -> int:
            return (await echo.timed(request))[0]

        await self._set_reply(SET_UNARY_REPLY, (await exchange())[1])
        return by_daemon, by_echo

    async def batch(self, batch: pb.Batch, prepare: Callable[[], None] = lambda: None) -> tuple[Sample, Sample]:
        """Samples of a Batch on the stream; `prepare` makes it the next one that the daemon would take."""

        async def exchange() -> tuple[int, pb.BatchReply]:
            prepare()
            took, reply = await self._exchange(batch)
            self._leases += [result.acquire.lease_id for result in reply.results if result.HasField("acquire")]
            return took, reply

        async def by_daemon() -> int:
            return (await exchange())[0]

        async def by_echo() -> int:
            return (await self._echo_stream.timed(batch))[0]

        await self._set_reply(SET_STREAM_REPLY, (await exchange())[1])
        return by_daemon, by_echo

    async def _exchange(self, batch: pb.Batch) -> tuple[int, pb.BatchReply]:
        self._session.stamp(batch.call)
        return await self._stream.timed(batch)

    async def _set_reply(self, path: str, reply: Message) -> None:
        set_reply = self._echo.unary_unary(path, request_serializer=bytes, response_deserializer=bytes)
        await set_reply(reply.SerializeToString())

    async def close(self) -> None:
        """Gives up both connections."""
        await self._daemon.close()
        await self._echo.close()
