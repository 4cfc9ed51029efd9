"""`radixd doctor` against live daemons in prepared trouble, and against what it cannot ask."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from radixd.client import Client, NoPages
from radixd.v1 import admin_pb2
from scripts.doctor_situations import K, prompt
from tests.e2e import daemon_process, stalling_daemon
from tests.e2e.conftest import StartDaemon
from tests.e2e.daemon_process import COMMAND, MODEL, PATIENCE_S, DaemonProcess, radixd
from tests.e2e.scraped import metrics_url, text
from tests.e2e.test_service_manager import until

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "doctor_situations.py"


def situation(name: str) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """What the doctor found there, by name, and all that it said."""
    command = (sys.executable, str(SCRIPT), name, "--json")
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=ROOT)
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout)
    (pool,) = report["pools"]
    found = {finding["name"]: finding for finding in pool["findings"]}
    assert done.returncode == (1 if found else 0)
    return found, pool


def facts(finding: dict[str, Any]) -> dict[str, Any]:
    return {fact["what"]: fact["value"] for fact in finding["evidence"]}


def test_capacity_below_the_expected() -> None:
    found, _ = situation("wrong-layers")
    assert list(found) == ["CapacityBelowExpected"]
    cause = found["CapacityBelowExpected"]["cause"]
    assert "holds 1,775,616 tokens where 1,853,824 are expected" in cause
    assert cause.endswith("39 index layers in place of 21")


def test_long_requests_refused_while_short_ones_pass() -> None:
    found, _ = situation("starved")
    assert list(found) == ["LongRequestsStarve"]
    finding = found["LongRequestsStarve"]
    assert "need 8,192 pages are refused while requests of" in finding["cause"]
    assert "reserved for requests that were admitted" in finding["cause"]
    told = facts(finding)
    assert told["refused, reserved"] == 5
    (holder,) = (what for what in told if what.startswith("reserved pages, session"))
    assert "'greedy'" in holder
    assert told[holder] == 16_384 - 128


def test_a_high_hit_rate_made_of_a_few_long_hits() -> None:
    found, _ = situation("seldom-hits")
    assert list(found) == ["HitsSpareLittle"]
    assert "77% of the requests found 1,024 tokens or fewer" in found["HitsSpareLittle"]["cause"]


def test_a_high_hit_rate_before_long_suffixes() -> None:
    found, _ = situation("long-suffixes")
    assert list(found) == ["HitsSpareLittle"]
    assert "(P·S) costs 1.5 times what they spared (P²/2)" in found["HitsSpareLittle"]["cause"]


def test_decode_cost_that_grows_with_context() -> None:
    found, pool = situation("long-decode")
    assert list(found) == ["DecodeReadsLongContexts"]
    told = facts(found["DecodeReadsLongContexts"])
    assert told["active leases"] == 10
    assert told["index bytes that a step reads"] == 10 * (2**20 - 2**10 + 256) * 132 * 21
    assert "is capacity below the expected?" in pool["denied"]


def test_a_healthy_replay_has_no_finding() -> None:
    found, pool = situation("healthy")
    assert found == {}
    assert pool["untold"] == []


# --- asking


@pytest.fixture
def watched(start_daemon: StartDaemon) -> DaemonProcess:
    return start_daemon("--metrics", "127.0.0.1:0").serving()


def doctor(daemon: DaemonProcess, *flags: str) -> subprocess.CompletedProcess[str]:
    return radixd("doctor", "--target", str(daemon.socket), "--metrics", metrics_url(daemon), *flags)


def test_only_what_happens_meanwhile_counts(watched: DaemonProcess) -> None:
    with Client(watched.socket) as client, client.open_session(model=MODEL, name="a[red]\x1b[2J") as session:
        session.acquire(prompt(0, K), reserve_to=6_400 - 64)
        session.acquire(prompt(1, 16)).release()
        with pytest.raises(NoPages):
            session.acquire(prompt(2, 5 * K))
        since_start = doctor(watched, "--seconds", "0")
        meanwhile = doctor(watched, "--seconds", "0.2")
    assert since_start.returncode == 1
    assert "LongRequestsStarve" in since_start.stdout
    assert r"'a[red]\x1b[2J'" in since_start.stdout  # what a client has called itself is neither markup nor a command
    assert meanwhile.returncode == 0, meanwhile.stdout
    assert "counted over 0.2 s" in meanwhile.stdout
    assert meanwhile.stderr == "radixd doctor: watching for 0.2 s\n"
    assert "not told: does a high hit rate bring no faster first token? no Acquire was granted" in meanwhile.stdout


def test_saved_scrapes_tell_the_same(watched: DaemonProcess, tmp_path: Path) -> None:
    before, after = tmp_path / "before.prom", tmp_path / "after.prom"
    with Client(watched.socket) as client, client.open_session(model=MODEL) as session:
        session.acquire(prompt(0, K), reserve_to=6_400 - 64)
        before.write_text(text(watched))
        with pytest.raises(NoPages):
            session.acquire(prompt(2, 5 * K))
        after.write_text(text(watched))
    one = radixd("doctor", "--metrics", str(after))
    assert one.returncode == 1
    assert "LongRequestsStarve" in one.stdout
    assert "not told: who holds pages? only a running daemon names its sessions" in one.stdout
    assert "and nothing is granted" in radixd("doctor", "--metrics", str(before), str(after)).stdout
    assert radixd("doctor", "--metrics", str(before)).returncode == 0


def test_metrics_of_another_daemon_are_not_taken_for_its_own(watched: DaemonProcess, start_daemon: StartDaemon) -> None:
    other = start_daemon("--metrics", "127.0.0.1:0", name="o.sock").serving()
    done = radixd("doctor", "--target", str(other.socket), "--metrics", metrics_url(watched), "--seconds", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert "are not those of the daemon at" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.fixture
def stalling(start_daemon: StartDaemon, notify: socket.socket, monkeypatch: pytest.MonkeyPatch) -> DaemonProcess:
    with monkeypatch.context() as patched:
        patched.setattr(daemon_process, "COMMAND", (sys.executable, stalling_daemon.__file__))
        return start_daemon("--metrics", "127.0.0.1:0").serving()


@contextmanager
def stall(daemon: DaemonProcess, notify: socket.socket) -> Iterator[None]:
    """Its loop stands still from now on, until the test ends it."""
    call = daemon.admin.Evict.future(admin_pb2.EvictRequest(pages=3600), timeout=3600)
    until(notify, stalling_daemon.BEGUN)
    yield
    call.cancel()  # as gRPC does with a call that nobody holds, perhaps before it is sent


def test_a_loop_that_stands_still_is_named_without_asking_it(stalling: DaemonProcess, notify: socket.socket) -> None:
    with stall(stalling, notify):
        found = doctor(stalling, "--seconds", "3600")
    assert (found.returncode, found.stderr) == (1, "")
    where = metrics_url(stalling)
    assert found.stdout.startswith(
        f"{where} alone: the event loop of the daemon there does not answer\n\n  LoopStalls: "
    )


def test_a_loop_that_stands_still_meanwhile_is_named_too(stalling: DaemonProcess, notify: socket.socket) -> None:
    there = ("--target", str(stalling.socket), "--metrics", metrics_url(stalling))
    command = (*COMMAND, "doctor", *there, "--seconds", "5", "--json")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as asking:
        try:
            assert asking.stderr
            assert asking.stderr.readline() == "radixd doctor: watching for 5 s\n"
            with stall(stalling, notify):
                said, _ = asking.communicate(timeout=PATIENCE_S)
        finally:
            asking.kill()
    assert asking.returncode == 1
    report = json.loads(said)
    assert (report["daemon"]["name"], report["pools"]) == ("LoopStalls", [])


def test_who_cannot_be_asked_is_named_in_one_line(daemon: DaemonProcess, tmp_path: Path) -> None:
    there = str(daemon.socket)
    for flags, told in (
        (("--target", str(tmp_path / "nobody.sock")), "no daemon answers at"),
        (("--target", there, "--metrics", "127.0.0.1:9"), "no metrics at http://127.0.0.1:9/metrics (["),
        (("--target", there, "--pool", "other"), "no pool 'other' is served here"),
    ):
        done = radixd("doctor", "--seconds", "0", *flags)
        assert (done.returncode, done.stdout) == (2, ""), flags
        assert done.stderr.startswith("radixd doctor: ")
        assert told in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_held_situation_says_how_to_ask() -> None:
    command = (sys.executable, str(SCRIPT), "wrong-layers", "--hold")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as held:
        assert held.stdin
        assert held.stdout
        words = held.stdout.readline().split()
        assert words[:2] == ["radixd", "doctor"]
        done = subprocess.run((*COMMAND, *words[1:]), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert "39 index layers in place of 21" in done.stdout
        held.stdin.write("\n")
        held.stdin.close()
        assert held.wait(PATIENCE_S) == 0
