"""The daemon as a process: which one it is, its phase, its event loop and its garbage collector."""

import platform
import time
from collections.abc import Iterator
from importlib.metadata import version

from prometheus_client.metrics_core import GaugeMetricFamily, HistogramMetricFamily, Metric

from radixd.server.gate import Gate, State
from radixd.server.observability.families import add_histogram
from radixd.server.observability.vitals import Vitals


def identity(epoch: int) -> Iterator[Metric]:
    """Which build, and since when. `epoch`: nanoseconds, as the contract knows it."""
    build = GaugeMetricFamily("radixd_build_info", "1: what runs here", labels=["version", "python", "grpc"])
    build.add_metric([version("radixd"), platform.python_version(), version("grpcio")], 1)
    yield build
    yield GaugeMetricFamily(
        "radixd_epoch_timestamp_seconds", "When the epoch, the life of the device memory, began", value=epoch / 1e9
    )


def phase(gate: Gate, drain_seconds: float) -> Iterator[Metric]:
    """Starting, serving or draining."""
    state = GaugeMetricFamily("radixd_state", "1 for the phase that the daemon is in", labels=["state"])
    for it in State:
        state.add_metric([it.value.lower()], gate.state is it)
    draining = time.monotonic() - gate.since if gate.state is State.DRAINING else 0.0
    yield state
    yield GaugeMetricFamily("radixd_draining_seconds", "Since draining began; 0 while it has not", value=draining)
    yield GaugeMetricFamily("radixd_drain_grace_seconds", "How long draining may take", value=drain_seconds)


def vitals(watched: Vitals) -> Iterator[Metric]:
    """What can be read while the loop stands still, too."""
    lag = HistogramMetricFamily("radixd_event_loop_lag_seconds", "How late the loop gave a timer its turn, 20 a second")
    pauses = HistogramMetricFamily("radixd_gc_pause_seconds", "Garbage collections", labels=["generation"])
    add_histogram(lag, [], watched.loop.lag)
    for generation, seconds in enumerate(watched.gc.seconds):
        add_histogram(pauses, [str(generation)], seconds)
    yield from (lag, pauses)
    yield GaugeMetricFamily(
        "radixd_event_loop_longest_stall_seconds",
        "The longest lag of the last one to two minutes, one that goes on included",
        value=watched.loop.longest,
    )
