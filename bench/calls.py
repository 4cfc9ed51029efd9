"""The client side of the gRPC part: the generated messages over a bare channel, alike for the daemon and the echo."""

from pathlib import Path
from secrets import token_bytes
from time import perf_counter_ns
from typing import Generic, TypeVar

import grpc
from google.protobuf.message import Message

from radixd.client.channel import OPTIONS
from radixd.v1 import cache_pb2, session_pb2

SCHEDULE, MATCH, ACQUIRE = (f"/radixd.v1.Cache/{method}" for method in ("Schedule", "Match", "Acquire"))
MODEL = b"bench"


ResponseT = TypeVar("ResponseT", bound=Message)


def open_channel(socket: Path) -> grpc.aio.Channel:
    """A connection of its own."""
    return grpc.aio.insecure_channel(f"unix:{socket}", options=OPTIONS)


def wire(message: Message) -> bytes:
    """A message as it travels."""
    return message.SerializeToString()


class UnaryCall(Generic[ResponseT]):
    """One unary method."""

    def __init__(self, channel: grpc.aio.Channel, path: str, response_type: type[ResponseT]) -> None:
        self._method: grpc.aio.UnaryUnaryMultiCallable[Message, ResponseT] = channel.unary_unary(
            path, request_serializer=wire, response_deserializer=response_type.FromString
        )

    async def timed(self, request: Message) -> tuple[int, ResponseT]:
        """Nanoseconds from the request's message to the response's."""
        start = perf_counter_ns()
        response = await self._method(request)
        return perf_counter_ns() - start, response


class Stream:
    """One open Schedule stream, or the echo's."""

    def __init__(self, channel: grpc.aio.Channel, path: str = SCHEDULE) -> None:
        self._call: grpc.aio.StreamStreamCall[Message, cache_pb2.BatchReply] = channel.stream_stream(
            path,
            request_serializer=wire,
            response_deserializer=cache_pb2.BatchReply.FromString,
        )()

    async def timed(self, batch: cache_pb2.Batch) -> tuple[int, cache_pb2.BatchReply]:
        """Nanoseconds from the Batch's message to the reply's, all of whose operations were carried out."""
        start = perf_counter_ns()
        await self._call.write(batch)
        reply = await self._call.read()
        took = perf_counter_ns() - start
        if not isinstance(reply, cache_pb2.BatchReply):
            raise RuntimeError(f"the stream ended: {await self._call.details()}")
        for result in reply.results:
            if result.HasField("status"):
                raise RuntimeError(f"an operation was refused: {result.status.message}")
        return took, reply


def open_request() -> session_pb2.OpenSessionRequest:
    """A session whose namespaces are those of every other one here."""
    return session_pb2.OpenSessionRequest(client_name="bench", nonce=token_bytes(16), model=MODEL)


class OpenSession:
    """A session of the daemon, and the head of its next call."""

    def __init__(self, opened: session_pb2.OpenSessionResponse) -> None:
        self._opened = opened
        self._seq = 0

    def stamp(self, call: cache_pb2.Call) -> None:
        """Makes `call` the session's next: every earlier reply is received, every step finished."""
        self._seq += 1
        call.session_id, call.secret, call.epoch = self._opened.session_id, self._opened.secret, self._opened.epoch
        call.seq, call.ack = self._seq, self._seq - 1
        call.launched = call.completed = self._seq
