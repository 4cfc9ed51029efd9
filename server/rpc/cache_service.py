"""The Cache service: the Schedule stream and the unary verbs, over one dispatch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import grpc

from radixd.server.cache.refusal import Refusal
from radixd.server.rpc import verbs
from radixd.server.rpc.batch_run import VerbResponse, VerbRun
from radixd.server.rpc.dispatch import Dispatch
from radixd.server.rpc.methods import Message, Methods, method_name, receiver
from radixd.server.rpc.schedule_stream import Context, Requests, ScheduleStream
from radixd.server.rpc.status import abort
from radixd.server.rpc.verbs import Scope
from radixd.v1 import cache_pb2 as pb

NAME = "radixd.v1.Cache"


class VerbRequest(Message, Protocol):
    """The request message of a unary verb."""

    @property
    def call(self) -> pb.Call: ...


RequestT = TypeVar("RequestT", bound=VerbRequest)
ResponseT = TypeVar("ResponseT", bound=VerbResponse)


def cache_service(dispatch: Dispatch) -> grpc.GenericRpcHandler:
    """All methods of radixd.v1.Cache. Replies are recorded as bytes and go out as such."""

    async def schedule(requests: Requests, context: Context) -> None:
        await ScheduleStream(dispatch, context).serve(requests)

    methods: Methods = {
        "Schedule": grpc.stream_stream_rpc_method_handler(schedule),
        "Match": _verb(dispatch, pb.MatchRequest, pb.MatchResponse, lambda s, q, a: verbs.match(s, q.match, a.result)),
        "Acquire": _verb(
            dispatch, pb.AcquireRequest, pb.AcquireResponse, lambda s, q, a: verbs.acquire(s, q.acquire, a.result)
        ),
        "Allocate": _verb(
            dispatch, pb.AllocateRequest, pb.AllocateResponse, lambda s, q, a: verbs.allocate(s, q.allocate, a.result)
        ),
        "Insert": _verb(
            dispatch, pb.InsertRequest, pb.InsertResponse, lambda s, q, a: verbs.insert(s, q.insert, a.result)
        ),
        "Free": _verb(dispatch, pb.FreeRequest, pb.FreeResponse, lambda s, q, a: verbs.free(s, q.free, a.result)),
        "Release": _verb(
            dispatch, pb.ReleaseRequest, pb.ReleaseResponse, lambda s, q, a: verbs.release(s, q.release, a.result)
        ),
        "Move": _verb(dispatch, pb.MoveRequest, pb.MoveResponse, lambda s, q, a: verbs.move(s, q.move, a.result)),
        "Offload": _verb(
            dispatch, pb.OffloadRequest, pb.OffloadResponse, lambda s, q, a: verbs.offload(s, q.offload, a.result)
        ),
        "Restore": _verb(
            dispatch, pb.RestoreRequest, pb.RestoreResponse, lambda s, q, a: verbs.restore(s, q.restore, a.result)
        ),
    }
    return grpc.method_handlers_generic_handler(NAME, methods)


def _verb(
    dispatch: Dispatch,
    request_type: type[RequestT],
    response_type: type[ResponseT],
    verb: Callable[[Scope, RequestT, ResponseT], None],
) -> grpc.RpcMethodHandler[bytes, bytes]:
    receive = receiver(request_type)
    name = method_name(request_type).lower()

    async def respond(wire: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        response = response_type()
        try:
            digest, request = receive(wire)
            session = dispatch.admit(request.call)
            run = VerbRun(session, response, name, lambda scope: verb(scope, request, response))
            reply = await dispatch.answer(session, request.call, digest, run)
        except Refusal as refusal:
            reply = refusal
        return await abort(context, reply) if isinstance(reply, Refusal) else reply

    return grpc.unary_unary_rpc_method_handler(respond)
