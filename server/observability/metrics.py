"""All that Prometheus is shown, in one registry, and what must run to know it."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, ProcessCollector

from radixd.server.gate import Gate
from radixd.server.observability.collector import DaemonCollector
from radixd.server.observability.vitals import Vitals
from radixd.server.pools.pool import Pool
from radixd.server.sessions.calls import Calls
from radixd.server.sessions.registry import SessionRegistry


class Metrics:
    """The daemon's families; made on its loop, whose lag is watched until `close`."""

    def __init__(
        self,
        pools: Mapping[str, Pool],
        registry: SessionRegistry[Pool],
        gate: Gate,
        calls: Calls,
        drain_seconds: float,
    ) -> None:
        self._vitals = Vitals()
        self.families = CollectorRegistry()
        ProcessCollector(registry=self.families)
        self.families.register(DaemonCollector(pools, registry, gate, calls, self._vitals, drain_seconds))

    def close(self) -> None:
        """Watch no more."""
        self._vitals.close()
