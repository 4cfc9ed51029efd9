"""The gRPC listener: its options, its sockets, health and reflection."""

import asyncio
import os
from pathlib import Path

import grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE_NAME
from grpc_reflection.v1alpha import reflection

from radixd.server.calls_under_way import CallsUnderWay
from radixd.server.config import Address, Config
from radixd.server.health import Health
from radixd.v1 import admin_pb2, cache_pb2, session_pb2

SERVICES = tuple(
    service.full_name
    for module in (cache_pb2, session_pb2, admin_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
)
"""All that a client may call."""
LAST_REPLIES_SECONDS = 0.5
"""For replies on their way out. Only who watches health or reflection makes a stop take so long."""


class BindError(RuntimeError):
    """A socket cannot be bound; the message says which and what to do."""


class GrpcServer:
    """A grpc.aio server with health and reflection; others add their services before `start`."""

    def __init__(self, config: Config) -> None:
        self._calls = CallsUnderWay()
        options = _options(config.limits.message_bytes)
        self.server = grpc.aio.server(interceptors=(self._calls,), options=options)
        self._config = config
        self.health = Health(self.server, SERVICES)
        reflection.enable_server_reflection((*SERVICES, HEALTH_SERVICE_NAME, reflection.SERVICE_NAME), self.server)

    async def start(self) -> None:
        """Bind and listen. The caller holds the lock on the socket. Raises BindError."""
        await self.health.say(serving=False, troubles={pool.name: "" for pool in self._config.pools})
        _bind_unix(self.server, self._config.socket)
        if self._config.tcp is not None:
            _bind_tcp(self.server, self._config.tcp)
        await self.server.start()

    async def drain(self, grace: float) -> None:
        """Answer on until no call of ours is under way, for at most `grace` seconds; then stop."""
        _, late = await asyncio.wait({asyncio.create_task(self._calls.none())}, timeout=grace)
        for waiting in late:
            waiting.cancel()
        await self.stop(0 if late else LAST_REPLIES_SECONDS)

    async def stop(self, grace: float) -> None:
        """Take no new calls, give those under way `grace` seconds, then cancel them; remove the socket."""
        await self.server.stop(grace)
        self._config.socket.unlink(missing_ok=True)


def _options(message_bytes: int) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", message_bytes),
        ("grpc.max_send_message_length", message_bytes),
        # Two daemons would share a TCP port in silence.
        ("grpc.so_reuseport", 0),
        # An open stream never expires: a stopped client answers no ping, and gRPC sends one every two hours by itself.
        ("grpc.keepalive_time_ms", 2**31 - 1),
        # Clients ping every 10 s, also between calls; gRPC's own limit of one in 300 s would hang up on them.
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
    ]


def _bind_unix(server: grpc.aio.Server, path: Path) -> None:
    previous = os.umask(0o177)  # the socket's mode, 0600, is the permission
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise BindError(f"cannot bind {path}: {error}") from error
    finally:
        os.umask(previous)


def _bind_tcp(server: grpc.aio.Server, address: Address) -> None:
    try:
        server.add_insecure_port(str(address))
    except RuntimeError as error:
        raise BindError(f"cannot bind {address}: is the port taken? Choose another --tcp ({error})") from error
