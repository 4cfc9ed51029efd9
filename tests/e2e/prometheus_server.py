"""Debian's Prometheus and promtool, unpacked beside the repository by scripts/prometheus.sh."""

import json
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.e2e.daemon_process import PATIENCE_S, eventually

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus"
CONFIG = """\
global: {{scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 1s}}
rule_files: ["{rules}/*.rules.yaml"]
scrape_configs:
  - job_name: radixd
    static_configs: [{{targets: ["{target}"]}}]
"""


class PrometheusServer:
    """A Prometheus that scrapes one daemon five times a second and evaluates the repository's rules every second."""

    def __init__(self, programs: Path, folder: Path, target: str) -> None:
        config = folder / "prometheus.yml"
        config.write_text(CONFIG.format(rules=RULES, target=target))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._url = f"http://127.0.0.1:{port}"
        self._log = folder / "prometheus.log"
        flags = (
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}",
        )
        with self._log.open("wb") as log:
            self._process = subprocess.Popen((str(programs / "prometheus"), *flags), stderr=log)

    def ready(self) -> "PrometheusServer":
        """This, once it answers and has scraped."""
        eventually(lambda: self._process.poll() is not None or bool(self._scraped()))
        assert self._process.poll() is None, self._log.read_text()
        return self

    def _scraped(self) -> list[Any]:
        try:
            return self.query("radixd_build_info")
        except OSError:
            return []

    def query(self, expression: str) -> list[Any]:
        """The result of an instant query."""
        form = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self._url}/api/v1/query?{form}", timeout=PATIENCE_S) as reply:
            return list(json.load(reply)["data"]["result"])

    def samples(self, selector: str) -> list[tuple[Mapping[str, str], dict[float, float]]]:
        """All samples of the last hour by time, series by series."""
        found = self.query(f"{selector}[1h]")
        return [(it["metric"], {at: float(value) for at, value in it["values"]}) for it in found]

    def firing(self) -> set[str]:
        """Names of the alerts that fire."""
        return {it["metric"]["alertname"] for it in self.query('ALERTS{alertstate="firing"}')}

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
