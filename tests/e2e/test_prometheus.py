"""A real Prometheus scrapes a daemon, with the repository's rules."""

import resource
import signal
import time
from collections import Counter, defaultdict
from pathlib import Path

from radixd.client import Client
from tests.e2e.conftest import Promtool, StartDaemon, StartPrometheus
from tests.e2e.daemon_process import MODEL, PATIENCE_S, eventually, radixd
from tests.e2e.prometheus_server import PrometheusServer
from tests.e2e.scraped import text
from tests.e2e.test_host_tier import flags, publish

REPLAY = ("--requests", "800", "--schedulers", "2", "--kill-every", "0", "--preempt", "6", "--reconnects", "0")


def ledgers(prometheus: PrometheusServer) -> dict[tuple[str, float], tuple[float, float]]:
    """(sum of the owners, size) by tier and time of the scrape, asked at once: the next scrape may be under way."""
    found: defaultdict[str, Counter[tuple[str, float]]] = defaultdict(Counter)
    for labels, samples in prometheus.samples('{__name__=~"radixd_pages|radixd_pool_pages"}'):
        for at, pages in samples.items():
            found[labels["__name__"]][labels["tier"], at] += pages
    sums, sizes = found["radixd_pages"], found["radixd_pool_pages"]
    assert set(sums) == set(sizes)
    return {key: (sums[key], size) for key, size in sizes.items()}


def test_the_ledger_sums_at_every_scrape_of_a_replay_and_no_alert_fires(
    start_daemon: StartDaemon, start_prometheus: StartPrometheus, promtool: Promtool
) -> None:
    pool = ("--device", "cpu", "--tokens", "12800", "--host-tokens", "12800", "--metrics", "127.0.0.1:0")
    daemon = start_daemon(*pool).serving()
    prometheus = start_prometheus(daemon)
    replayed = radixd("replay", "--target", str(daemon.socket), *REPLAY)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    leased = {
        at for labels, it in prometheus.samples('radixd_pages{state="leased"}') for at, pages in it.items() if pages
    }
    assert len(leased) >= 5, "hardly a scrape met the replay"
    scrapes = ledgers(prometheus)
    assert {tier for tier, _ in scrapes} == {"device", "host"}
    assert all(pages == size == 201 for pages, size in scrapes.values())
    # A machine that is busy with something else does stall the loop, and the alert would be right.
    fired = {it["metric"]["alertname"] for it in prometheus.query('max_over_time(ALERTS{alertstate="firing"}[1h])')}
    assert fired <= {"RadixdLoopStalls"}
    assert prometheus.query("radixd:hit:ratio10m")
    checked = promtool("check", "metrics", text=text(daemon))
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_alerts_fire_when_their_time_has_come(
    start_daemon: StartDaemon, start_prometheus: StartPrometheus, folder: Path
) -> None:
    state = folder / "state"
    before = start_daemon(*flags(state)).serving()
    before.process.terminate()
    assert before.process.wait(PATIENCE_S) == 0
    (state / "default" / "journal").write_bytes(b"no journal")
    daemon = start_daemon(*flags(state, "--metrics", "127.0.0.1:0", "--write-policy", "write_through")).serving()
    prometheus = start_prometheus(daemon)
    eventually(lambda: "RadixdRestartCold" in prometheus.firing())
    assert "RadixdJournalLost" not in prometheus.firing()

    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    with Client(daemon.socket) as client, client.open_session(model=MODEL, name="one") as session:
        publish(session, [1])
    eventually(lambda: "RadixdJournalLost" in prometheus.firing())

    daemon.process.send_signal(signal.SIGSTOP)
    time.sleep(1.5)
    daemon.process.send_signal(signal.SIGCONT)
    eventually(lambda: "RadixdLoopStalls" in prometheus.firing())
