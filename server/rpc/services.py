"""All of radixd's services, for a server to serve."""

from collections.abc import Mapping

import grpc

from radixd.server.gate import Gate
from radixd.server.rpc.admin_service import AdminService
from radixd.server.rpc.cache_service import cache_service
from radixd.server.rpc.dispatch import Dispatch
from radixd.server.rpc.session_service import SessionService
from radixd.server.sessions.registry import PoolT, SessionRegistry

SERVICE_NAMES = ("radixd.v1.Cache", "radixd.v1.Sessions", "radixd.v1.Admin")


def add_services(
    server: grpc.aio.Server, registry: SessionRegistry[PoolT], pools: Mapping[str, PoolT], gate: Gate
) -> None:
    """Adds the services to a server that has not started. All share the event loop that it will run on."""
    dispatch = Dispatch(registry, gate)
    handlers = (
        cache_service(dispatch),
        SessionService(registry, gate).handler(),
        AdminService(registry, pools, gate).handler(),
    )
    server.add_generic_rpc_handlers(handlers)
