"""A daemon under `radixd replay` without end, its status page, and a Prometheus that scrapes it, until ^C."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RADIXD = (str(Path(sys.executable).with_name("radixd")),)
# No conversation comes back under the next seed, so a full host tier only drops what it was given, which the doctor and
# an alert call thrashing. This one, of 0.5 GiB, takes some 10 minutes to be full, on a faster machine fewer.
POOL = ("--geometry", "tiny", "--tokens", "100000", "--host-tokens", "6400000")
PROMETHEUS_PORT = 9090
START_SECONDS = 60.0
STOP_SECONDS = 15.0
CONFIG = """\
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}/*.rules.yaml"]
scrape_configs: [{{job_name: radixd, static_configs: [{{targets: ["{target}"]}}]}}]
"""


class Observed:
    """Programs, each in a process group of its own, with its log in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """Start one; it ends with the others."""
        with self.log(name).open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        self._running.append(process)
        return process

    def log(self, name: str) -> Path:
        """Where it writes."""
        return self._folder / f"{name}.log"

    def wait_for(self, name: str, pattern: str) -> str:
        """What the first group of `pattern` finds in a log, once it does; SystemExit where it never will."""
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self._running[-1].poll() is None:
            if found := re.search(pattern, self.log(name).read_text()):
                return found[1]
            time.sleep(0.1)
        raise SystemExit(f"{name} did not start:\n{self.log(name).read_text()}")

    def stop(self) -> None:
        """End them, the last first, and whatever each has started."""
        for process in reversed([process for process in self._running if process.poll() is None]):
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, number)
                    process.wait(STOP_SECONDS)
                except ProcessLookupError:
                    break
                except subprocess.TimeoutExpired:
                    continue


def loopback_address(port: int) -> str:
    """With that port, or with a free one where it is taken."""
    try:
        found = socket.create_server(("127.0.0.1", port))
    except OSError:
        found = socket.create_server(("127.0.0.1", 0))
    with found:
        return f"127.0.0.1:{found.getsockname()[1]}"


def start_prometheus(observed: Observed, folder: Path, target: str) -> str:
    """Its address, or why there is none."""
    found = subprocess.run((str(ROOT / "scripts/prometheus.sh"),), capture_output=True, text=True, check=False)
    if found.returncode:
        return f"none: {found.stderr.strip()}"
    config = folder / "prometheus.yml"
    config.write_text(CONFIG.format(rules=ROOT / "deploy" / "prometheus", target=target))
    program = str(Path(found.stdout.strip()) / "prometheus")
    address = loopback_address(PROMETHEUS_PORT)
    flags = (f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address={address}")
    observed.start("prometheus", program, *flags)
    observed.wait_for("prometheus", "(Server is ready)")
    return f"http://{address}"


def main() -> None:
    """Run until ^C or SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM):  # also where whoever started this ignores ^C
        signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="radixd-") as name:
        folder = Path(name)
        observed, socket = Observed(folder), str(folder / "r.sock")
        try:
            daemon = observed.start("daemon", *RADIXD, "serve", "--socket", socket, *POOL)
            page = observed.wait_for("daemon", r"status page on (\S+),[\s\S]* serving ")
            prometheus = start_prometheus(observed, folder, page.removeprefix("http://"))
            print(f"status page   {page}\nmetrics       {page}/metrics\nPrometheus    {prometheus}")
            print(f"terminal      {RADIXD[0]} top --target {socket}\nlogs          {folder}\n^C ends all.", flush=True)
            for seed in count():
                replay = observed.start("replay", *RADIXD, "replay", "--target", socket, "--seed", str(seed))
                replay.wait()
                if replay.returncode or daemon.poll() is not None:
                    raise SystemExit(f"replay with seed {seed} ended badly:\n{observed.log('replay').read_text()}")
        except KeyboardInterrupt:
            print("\nending ...", flush=True)
        finally:
            observed.stop()


if __name__ == "__main__":
    main()
