"""Verbs by name and status, and how long they took."""

from collections.abc import Iterable, Iterator

from prometheus_client.metrics_core import Metric

from radixd.server.observability.families import add_histogram, counter, histogram
from radixd.server.pool import Pool
from radixd.server.sessions.work import VerbCounts, Work

UNKNOWN = "unknown"
OK = "OK"


def operations(pools: Iterable[Pool]) -> Iterator[Metric]:
    """Each verb has the status OK; a reason of refusal appears with the first of its kind."""
    total = counter("radixd_operations", "Operations by what became of them: OK, or the reason", "verb", "status")
    seconds = histogram("radixd_operation_seconds", "Time that operations took in the daemon, gRPC aside", "verb")
    for pool in pools:
        for verb, counts in _verbs(pool.work):
            refused = counts.refused.total()
            total.add_metric([pool.name, verb, OK], counts.seconds.count - refused)
            for reason, count in counts.refused.items():
                total.add_metric([pool.name, verb, reason.value], count)
            add_histogram(seconds, [pool.name, verb], counts.seconds)
    yield from (total, seconds)


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
