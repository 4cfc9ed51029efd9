"""How calls meet gRPC: what is read off the wire, and a refusal's way back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import grpc
from google.protobuf.message import DecodeError
from xxhash import xxh3_64_intdigest, xxh3_128_digest

from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.rpc.status import abort
from radixd.server.sessions.calls import Calls, counted

Methods: TypeAlias = "dict[str, grpc.RpcMethodHandler[Any, Any]]"
"""A service's methods by name; each has its own request and response."""


class Message(Protocol):
    """A protobuf message, as far as the wire goes."""

    @classmethod
    def FromString(cls, s: bytes) -> Self: ...

    def SerializeToString(self) -> bytes: ...


MessageT = TypeVar("MessageT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)


class Received(NamedTuple, Generic[MessageT]):
    """A request and the digest of the bytes that it came as: by it, a retry is known to be one."""

    digest: bytes
    message: MessageT


def parse(message_type: type[MessageT], wire: bytes) -> MessageT:
    """A message off the wire. Refuses: BAD_FIELD. gRPC, were it to do this, would log a client's fault as its own."""
    try:
        return message_type.FromString(wire)
    except DecodeError as error:
        raise Refusal(Reason.BAD_FIELD, f"{len(wire)} bytes that are no {message_type.__name__}: {error}") from None


def receiver(message_type: type[MessageT]) -> Callable[[bytes], Received[MessageT]]:
    """Parses requests of one type; equal bytes read as two types have two digests."""
    seed = xxh3_64_intdigest(message_type.__name__.encode())
    return lambda wire: Received(xxh3_128_digest(wire, seed), parse(message_type, wire))


def method_name(request_type: type[Message]) -> str:
    """What the contract calls the method that takes such requests."""
    return request_type.__name__.removesuffix("Request")


def awaited(
    calls: Calls, request_type: type[MessageT], answer: Callable[[MessageT], Awaitable[ResponseT]]
) -> grpc.RpcMethodHandler[bytes, bytes]:
    """A method whose answer takes its time, or raises Refusal."""
    counts = calls.register(method_name(request_type))

    async def respond(wire: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        try:
            with counted(counts):
                return (await answer(parse(request_type, wire))).SerializeToString()
        except Refusal as refusal:
            await abort(context, refusal)

    return grpc.unary_unary_rpc_method_handler(respond)


def unary(
    calls: Calls, request_type: type[MessageT], answer: Callable[[MessageT], ResponseT]
) -> grpc.RpcMethodHandler[bytes, bytes]:
    """A method that answers in one synchronous step, or raises Refusal."""
    counts = calls.register(method_name(request_type))

    async def respond(wire: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        try:
            with counted(counts):
                return answer(parse(request_type, wire)).SerializeToString()
        except Refusal as refusal:
            await abort(context, refusal)

    return grpc.unary_unary_rpc_method_handler(respond)
