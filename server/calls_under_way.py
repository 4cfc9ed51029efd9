"""Which calls have begun and not ended: what a drain waits for."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import grpc

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
Behaviour = Callable[[object, object], Awaitable[object]]
"""What grpc.aio runs for a call; its stubs know those of the threaded server alone."""

PREFIX = "/radixd."
"""Only the daemon's own calls count: health and reflection have streams that last as long as their client likes."""


class CallsUnderWay(grpc.aio.ServerInterceptor):
    """Counts them. gRPC's own graceful stop answers new calls with CANCELLED, or not at all; the daemon says why."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()

    async def intercept_service(
        self,
        continuation: Callable[
            [grpc.HandlerCallDetails], Awaitable["grpc.RpcMethodHandler[RequestT, ResponseT] | None"]
        ],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[RequestT, ResponseT] | None":
        """The method's handler, counted where it is one of the daemon's."""
        handler = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith(PREFIX):
            return handler
        if handler.stream_stream is not None:
            return grpc.stream_stream_rpc_method_handler(self._counted(cast("Behaviour", handler.stream_stream)))
        return grpc.unary_unary_rpc_method_handler(self._counted(cast("Behaviour", handler.unary_unary)))

    async def none(self) -> None:
        """Return once no call is under way."""
        await self._none.wait()

    def _counted(self, behaviour: Behaviour) -> Behaviour:
        async def counted(request: object, context: object) -> object:
            self._count += 1
            self._none.clear()
            try:
                return await behaviour(request, context)
            finally:
                self._count -= 1
                if not self._count:
                    self._none.set()

        return counted
