"""All of radixd's services, for a server to serve."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import grpc

from radixd.server.gate import Gate
from radixd.server.rpc.admin_service import AdminService
from radixd.server.rpc.cache_service import cache_service
from radixd.server.rpc.dispatch import Dispatch
from radixd.server.rpc.session_service import SessionService
from radixd.server.sessions.calls import Calls
from radixd.server.sessions.registry import PoolT, SessionRegistry

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer


def add_services(
    server: grpc.aio.Server,
    registry: SessionRegistry[PoolT],
    pools: Mapping[str, PoolT],
    gate: Gate,
    tracer: "Tracer | None" = None,
) -> Calls:
    """Adds the services to a server that has not started. All share the event loop that it will run on.

    With a tracer, every Batch is a span. Returns the counts of calls that are no operations of a Batch.
    """
    calls = Calls()
    dispatch = _dispatch(registry, gate, tracer)
    handlers = (
        cache_service(dispatch),
        SessionService(registry, gate).handler(calls),
        AdminService(registry, pools, gate).handler(calls),
    )
    server.add_generic_rpc_handlers(handlers)
    return calls


def _dispatch(registry: SessionRegistry[PoolT], gate: Gate, tracer: "Tracer | None") -> Dispatch:
    if tracer is None:
        return Dispatch(registry, gate)
    from radixd.server.rpc.traced_dispatch import TracedDispatch

    return TracedDispatch(registry, gate, tracer)
