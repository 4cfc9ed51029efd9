"""What a daemon's /metrics says."""

import re
import urllib.request
from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.daemon_process import PATIENCE_S, DaemonProcess

Series = tuple[str, tuple[tuple[str, str], ...]]


def metrics_url(daemon: DaemonProcess) -> str:
    """Where it serves them."""
    found = re.search(r"metrics on (\S+)", daemon.log.read_text())
    assert found
    return found[1]


def text(daemon: DaemonProcess) -> str:
    """One scrape as it goes over the wire."""
    with urllib.request.urlopen(metrics_url(daemon), timeout=PATIENCE_S) as reply:
        return str(reply.read().decode())


def families(daemon: DaemonProcess) -> Iterator[Metric]:
    """One scrape, family by family."""
    return text_string_to_metric_families(text(daemon))


class Scrape:
    """The samples of one scrape, which all are of one instant."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self.samples: dict[Series, float] = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in families(daemon)
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        """The sum of the samples of that name with these labels, which there must be."""
        found = self.values(name, **labels)
        assert found, f"no {name} with {labels}"
        return sum(found)

    def values(self, name: str, **labels: str) -> list[float]:
        """The samples of that name with these labels."""
        wanted = set(labels.items())
        return [value for (it, has), value in self.samples.items() if it == name and wanted <= set(has)]

    def labels(self, name: str, label: str) -> set[str]:
        """The values that a label has in the samples of that name."""
        return {dict(has)[label] for it, has in self.samples if it == name}
