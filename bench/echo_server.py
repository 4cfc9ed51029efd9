"""What gRPC itself costs: takes a request's bytes and answers with bytes that it was given before.

python -m bench.echo_server SOCKET serves it until SIGTERM, on the daemon's own kind of server: the same options, the
same health service, one event loop, and the same memory settings, which both inherit from the benchmark.
"""

import asyncio
import gc
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc

from radixd.server.config import Config
from radixd.server.grpc_server import GrpcServer

NAME = "bench.Echo"
UNARY, STREAM = f"/{NAME}/Unary", f"/{NAME}/Stream"
SET_UNARY_REPLY, SET_STREAM_REPLY = f"/{NAME}/SetUnaryReply", f"/{NAME}/SetStreamReply"

UnaryContext = grpc.aio.ServicerContext[bytes, bytes]


class Echo:
    """Its requests, like the daemon's replies, are bytes; nothing parses them."""

    def __init__(self) -> None:
        self._unary_reply = b""
        self._stream_reply = b""

    def handler(self) -> grpc.GenericRpcHandler:
        """All methods."""
        methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            "Unary": grpc.unary_unary_rpc_method_handler(self.unary),
            "Stream": grpc.stream_stream_rpc_method_handler(self.stream),
            "SetUnaryReply": grpc.unary_unary_rpc_method_handler(self.set_unary_reply),
            "SetStreamReply": grpc.unary_unary_rpc_method_handler(self.set_stream_reply),
        }
        return grpc.method_handlers_generic_handler(NAME, methods)

    async def unary(self, request: bytes, context: UnaryContext) -> bytes:
        """The reply that was set."""
        return self._unary_reply

    async def stream(self, requests: AsyncIterator[bytes], context: UnaryContext) -> None:
        """The reply that was set, to each message."""
        async for _ in requests:
            await context.write(self._stream_reply)

    async def set_unary_reply(self, request: bytes, context: UnaryContext) -> bytes:
        """Unary answers with the request's bytes from now on."""
        self._unary_reply = request
        return b""

    async def set_stream_reply(self, request: bytes, context: UnaryContext) -> bytes:
        """Stream answers with the request's bytes from now on."""
        self._stream_reply = request
        return b""


async def serve(socket: Path) -> None:
    """Serves until SIGTERM."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    listener = GrpcServer(Config(pools=(), socket=socket))
    listener.server.add_generic_rpc_handlers((Echo().handler(),))
    await listener.start()
    gc.collect()
    gc.freeze()
    await listener.health.say(serving=True, troubles={})
    await stopped.wait()
    await listener.stop(0)


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
