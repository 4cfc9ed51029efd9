"""Verbs by name and status, and how long they took."""

from collections.abc import Iterable, Iterator

from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily, Metric

from radixd.server.observability.families import add_histogram, counter, histogram
from radixd.server.pools.pool import Pool
from radixd.server.sessions.calls import Calls
from radixd.server.sessions.work import VerbCounts, Work

UNKNOWN = "unknown"
OK = "OK"


def operations(pools: Iterable[Pool]) -> Iterator[Metric]:
    """Each verb has the status OK; a reason of refusal appears with the first of its kind."""
    total = counter("radixd_operations", "Operations by what became of them: OK, or the reason", "verb", "status")
    seconds = histogram("radixd_operation_seconds", "Time that operations took in the daemon, gRPC aside", "verb")
    for pool in pools:
        for verb, counts in _verbs(pool.work):
            _add(total, seconds, [pool.name, verb], counts)
    yield from (total, seconds)


def calls(made: Calls) -> Iterator[Metric]:
    """The unary calls of sessions and of operators, of all pools."""
    total = CounterMetricFamily("radixd_calls", "Calls of Sessions and Admin", labels=["method", "status"])
    seconds = HistogramMetricFamily("radixd_call_seconds", "Time that they took, gRPC aside", labels=["method"])
    for method, counts in made.methods.items():
        _add(total, seconds, [method], counts)
    yield from (total, seconds)


def _add(total: CounterMetricFamily, seconds: HistogramMetricFamily, labels: list[str], counts: VerbCounts) -> None:
    total.add_metric([*labels, OK], counts.seconds.count - counts.refused.total())
    for reason, count in counts.refused.items():
        total.add_metric([*labels, reason.value], count)
    add_histogram(seconds, labels, counts.seconds)


def _verbs(work: Work) -> Iterator[tuple[str, VerbCounts]]:
    yield from work.verbs.items()
    yield UNKNOWN, work.unknown


def batches(pools: Iterable[Pool]) -> Iterator[Metric]:
    """Batches of Schedule streams."""
    size = histogram("radixd_batch_operations", "Operations in each Batch")
    seconds = histogram("radixd_batch_seconds", "From a Batch's arrival to its reply, the turns of others included")
    for pool in pools:
        add_histogram(size, [pool.name], pool.work.batch_operations)
        add_histogram(seconds, [pool.name], pool.work.batch_seconds)
    yield from (size, seconds)
