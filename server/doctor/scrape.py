"""One scrape of a daemon's /metrics."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from prometheus_client.parser import text_string_to_metric_families

EPOCH = "radixd_epoch_timestamp_seconds"


class ScrapeError(ValueError):
    """A text that is no scrape of one daemon; the message is one line."""


class Untold(Exception):
    """A question that these data do not answer; the message says what is missing."""


@dataclass(frozen=True)
class Sample:
    """One line of a scrape."""

    labels: Mapping[str, str]
    value: float

    def has(self, labels: Mapping[str, str]) -> bool:
        """Whether all of `labels` are among its own."""
        return labels.items() <= self.labels.items()


@dataclass(frozen=True)
class Scrape:
    """All samples by name; all are of one instant."""

    samples: Mapping[str, tuple[Sample, ...]]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ScrapeError for what no single daemon has written."""
        samples: dict[str, list[Sample]] = {}
        try:
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    samples.setdefault(sample.name, []).append(Sample(sample.labels, sample.value))
        except (ValueError, IndexError, KeyError) as error:
            raise ScrapeError(f"this is no Prometheus text: {str(error)!r:.80}") from error
        found = cls({name: tuple(them) for name, them in samples.items()})
        daemons = len(found.samples.get(EPOCH, ()))
        if daemons != 1:
            told = "none" if daemons == 0 else "several"
            raise ScrapeError(f"the metrics of one daemon are wanted, and here are {told}: no single {EPOCH}")
        for name, them in found.samples.items():
            if name.startswith("radixd_") and not all(math.isfinite(sample.value) for sample in them):
                raise ScrapeError(f"{name} is no finite number")
        return found

    @property
    def epoch(self) -> float:
        """Unix seconds at which the daemon's memory came to life."""
        return self.total(EPOCH)

    @property
    def pools(self) -> tuple[str, ...]:
        """Names; none where the daemon's loop stood still."""
        return tuple(sorted(self.by("radixd_pool_pages", "pool", tier="device")))

    def has(self, name: str, **labels: str) -> bool:
        """Whether there is such a sample."""
        return any(sample.has(labels) for sample in self.samples.get(name, ()))

    def total(self, name: str, **labels: str) -> float:
        """The sum of the samples with these labels. Raises Untold where there is none."""
        found = [sample.value for sample in self.samples.get(name, ()) if sample.has(labels)]
        if not found:
            raise Untold(f"no {name}{_braces(labels)} in the scrape")
        return sum(found)

    def by(self, name: str, label: str, **labels: str) -> Mapping[str, float]:
        """The samples with these labels, by the value of one more."""
        found: dict[str, float] = {}
        for sample in self.samples.get(name, ()):
            if sample.has(labels) and label in sample.labels:
                found[sample.labels[label]] = found.get(sample.labels[label], 0.0) + sample.value
        return found


def _braces(labels: Mapping[str, str]) -> str:
    return "{" + ", ".join(f'{key}="{value}"' for key, value in labels.items()) + "}" if labels else ""
