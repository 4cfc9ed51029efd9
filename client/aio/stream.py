"""The stream that a session's Batches and replies travel on."""

import asyncio
from contextlib import suppress

import grpc
from grpc import aio

from radixd.client.channel import SCHEDULE
from radixd.v1 import cache_pb2


class Stream:
    """One Schedule call. Opened at once; sending never waits.

    It writes by a task of its own: gRPC's, for an iterator of requests, outlives a call that the daemon has ended, and
    asyncio tells of it on stderr.
    """

    def __init__(self, channel: aio.Channel) -> None:
        self._outbox: asyncio.Queue[bytes] = asyncio.Queue()
        method: aio.StreamStreamMultiCallable[bytes, cache_pb2.BatchReply] = channel.stream_stream(
            SCHEDULE, request_serializer=None, response_deserializer=cache_pb2.BatchReply.FromString
        )
        self._call = method()
        self._writer = asyncio.create_task(self._write(), name="radixd-requests")

    def send(self, data: bytes) -> None:
        self._outbox.put_nowait(data)

    async def read(self) -> cache_pb2.BatchReply | None:
        """The next reply; None once the daemon has ended the stream. Raises grpc.RpcError where it broke."""
        reply = await self._call.read()
        return reply if isinstance(reply, cache_pb2.BatchReply) else None

    async def close(self) -> None:
        """End the call, and the task that writes to it."""
        self._call.cancel()
        self._writer.cancel()
        await asyncio.gather(self._writer, return_exceptions=True)

    async def _write(self) -> None:
        # A call that has ended takes no more; why it did is told by `read`.
        with suppress(grpc.RpcError, asyncio.InvalidStateError):
            while True:
                await self._call.write(await self._outbox.get())
