"""What Prometheus scrapes, read in one instant.

No label takes a value from a client: `pool`, `geometry` and `policy` are the operator's, the others are the code's. The
number of series is therefore bounded, whatever clients send. docs/metrics.md describes every family.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from radixd.server.gate import Gate
from radixd.server.observability import leases, ledgers, operations, pressure, process, reuse, tiers
from radixd.server.observability.loop_reader import LoopReader, LoopSilentError
from radixd.server.observability.vitals import Vitals
from radixd.server.pools.pool import Pool
from radixd.server.sessions.calls import Calls
from radixd.server.sessions.registry import SessionRegistry


class DaemonCollector(Collector):
    """Reads the pools on the loop that owns them, whatever thread is asked. Made on that loop.

    Where the loop stands still, a scrape has what can be told of the process alone, and radixd_loop_answers is 0.
    """

    def __init__(
        self,
        pools: Mapping[str, Pool],
        registry: SessionRegistry[Pool],
        gate: Gate,
        calls: Calls,
        vitals: Vitals,
        drain_seconds: float,
    ) -> None:
        self._pools = pools.values()
        self._registry = registry
        self._gate = gate
        self._calls = calls
        self._vitals = vitals
        self._drain_seconds = drain_seconds
        self._reader = LoopReader(asyncio.get_running_loop())

    def collect(self) -> Iterable[Metric]:
        """All families of one instant."""
        of_pools = self._read_pools()
        answers = GaugeMetricFamily("radixd_loop_answers", "0: the event loop stands still, pools cannot be read")
        answers.add_metric([], of_pools is not None)
        return [answers, *self._process(), *(of_pools or ())]

    def _process(self) -> Iterator[Metric]:
        yield from process.identity(self._registry.epoch)
        yield from process.phase(self._gate, self._drain_seconds)
        yield from process.vitals(self._vitals)

    def _read_pools(self) -> list[Metric] | None:
        try:
            return self._reader.read_on_thread(self._of_pools)
        except LoopSilentError:
            return None

    def _of_pools(self) -> list[Metric]:
        pools, registry = self._pools, self._registry
        return [
            *ledgers.pages(pools),
            *ledgers.trees(pools),
            *ledgers.geometries(pools),
            *reuse.tokens(pools),
            *reuse.publications(pools),
            *pressure.evictions(pools),
            *pressure.refusals(pools),
            *operations.operations(pools),
            *operations.batches(pools),
            *operations.calls(self._calls),
            *leases.sessions(pools, registry),
            *leases.leases(pools, registry),
            *leases.ended_leases(pools),
            *tiers.copies(pools),
            *tiers.tier_changes(pools),
            *tiers.imports(pools),
            *tiers.journals(pools),
            *tiers.starts(pools),
        ]
