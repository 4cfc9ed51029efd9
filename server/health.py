"""What gRPC health says: of the daemon as a whole, of each service, and of each pool."""

from collections.abc import Mapping

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc


class Health:
    """NOT_SERVING until told otherwise.

    "" is SERVING while the daemon serves and nothing is the matter with any pool; a service, while it serves at least
    one pool; "pool.NAME", while nothing is the matter with that one.
    """

    def __init__(self, server: grpc.aio.Server, services: tuple[str, ...]) -> None:
        self._services = services
        self._servicer = health.aio.HealthServicer()
        self._said: dict[str, bool] = {}
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)

    async def say(self, *, serving: bool, troubles: Mapping[str, str]) -> None:
        """Tell what has changed.

        Args:
            serving: whether the daemon takes calls.
            troubles: by pool, what is the matter with it; "" where nothing is.
        """
        well = [not trouble for trouble in troubles.values()]
        said = {"": serving and all(well)}
        said |= dict.fromkeys(self._services, serving and any(well))
        said |= {f"pool.{name}": serving and not trouble for name, trouble in troubles.items()}
        for name, good in said.items():
            if self._said.get(name) is not good:
                self._said[name] = good
                answer = health_pb2.HealthCheckResponse
                await self._servicer.set(name, answer.SERVING if good else answer.NOT_SERVING)

    async def announce_end(self) -> None:
        """NOT_SERVING, for good."""
        await self._servicer.enter_graceful_shutdown()
