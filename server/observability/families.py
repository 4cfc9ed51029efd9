"""Families of one pool each: the label `pool` first, and a name that says its unit."""

from collections.abc import Sequence
from itertools import accumulate

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from radixd.server.cache.histogram import Histogram


def gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    """A gauge by pool and `labels`, without samples yet."""
    return GaugeMetricFamily(name, text, labels=["pool", *labels])


def counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    """A counter by pool and `labels`, without samples yet; `_total` is added to its name."""
    return CounterMetricFamily(name, text, labels=["pool", *labels])


def histogram(name: str, text: str, *labels: str) -> HistogramMetricFamily:
    """A histogram by pool and `labels`, without samples yet."""
    return HistogramMetricFamily(name, text, labels=["pool", *labels])


def add_histogram(family: HistogramMetricFamily, labels: Sequence[str], observed: Histogram) -> None:
    """Adds what was observed, as cumulative buckets."""
    bounds = (*map(repr, map(float, observed.bounds)), "+Inf")
    buckets = list(zip(bounds, map(float, accumulate(observed.counts)), strict=True))
    family.add_metric(labels, buckets, observed.sum)
