"""The start-up self-test: whose memory others do not see is not served, and nothing is served before that is known."""

import hashlib
import json
import os
import signal
import sys
from pathlib import Path

import grpc
import pytest
import torch
from grpc_health.v1 import health_pb2

from radixd.client import Client
from radixd.client.attach import attach
from radixd.client.attach_probe import answer
from tests.e2e import daemon_process, estranged_daemon
from tests.e2e.conftest import StartDaemon
from tests.e2e.daemon_process import MODEL, PATIENCE_S, SERVING, DaemonProcess, eventually

NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
POOL = """
[[pools]]
name = "{name}"
geometry = "tiny"
device = "cpu"
devices = 2
layout = "{layout}"
tokens = 6400
"""


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_process, "COMMAND", (sys.executable, estranged_daemon.__file__))


def config(folder: Path, *names: str, layout: str = "page_first") -> tuple[str, str]:
    """The flags of a daemon with these pools."""
    path = folder / "radixd.toml"
    path.write_text("".join(POOL.format(name=name, layout=layout) for name in names))
    return "--config", str(path)


@pytest.mark.parametrize("layout", ["page_first", "layer_first"])
def test_it_is_over_before_the_daemon_serves_and_leaves_nothing(
    start_daemon: StartDaemon, folder: Path, layout: str
) -> None:
    daemon = start_daemon(*config(folder, "one", "two", layout=layout)).serving()
    log = daemon.log.read_text()
    for name in ("one", "two"):
        assert log.index(f"pool {name}: self-test: well") < log.index("serving one, two on")
    assert daemon.listed(1) is daemon.listed(2) is None
    with (
        Client(str(daemon.socket)) as client,
        client.open_session(pool="one", model=MODEL, name="me") as session,
        attach(session.ticket()) as memory,
    ):
        assert not any(views.buffer.any() for views in memory.views), "page 0 is empty again"


def test_nothing_is_ready_before_it(start_daemon: StartDaemon, folder: Path, held: Path) -> None:
    daemon = start_daemon(*config(folder, "one"))
    eventually(lambda: "session 1 opened by 'radixd self-test'" in daemon.log.read_text())
    assert daemon.health() == daemon.health("radixd.v1.Cache") == NOT_SERVING
    with pytest.raises(grpc.RpcError) as refused:
        daemon.open_session()
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    held.unlink()
    assert daemon.serving().health() == SERVING


def test_a_pool_that_others_do_not_see_is_stopped_alone(start_daemon: StartDaemon, folder: Path, planted: None) -> None:
    daemon = start_daemon(*config(folder, "estranged", "well"))
    eventually(lambda: daemon.health("radixd.v1.Cache") == SERVING)
    assert daemon.health("pool.well") == SERVING
    assert daemon.health("pool.estranged") == daemon.health() == NOT_SERVING
    assert "device 0: who attaches reads other bytes than the daemon has written" in daemon.log.read_text()


def test_a_daemon_whose_only_pool_is_not_seen_does_not_start(
    start_daemon: StartDaemon, folder: Path, planted: None
) -> None:
    daemon = start_daemon(*config(folder, "estranged"))
    assert daemon.process.wait(PATIENCE_S) == 1
    assert "radixd serve: pool estranged: its memory is lost: device 0" in daemon.log.read_text()
    assert not daemon.socket.exists()


@pytest.fixture
def held(folder: Path, planted: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """While it is there, no probe begins."""
    hold = folder / "hold"
    hold.touch()
    monkeypatch.setenv(estranged_daemon.HOLD, str(hold))
    return hold


def probe_of(daemon: DaemonProcess, pool: str) -> int:
    """The pid of the probe, once it is asked about the pool."""
    eventually(lambda: f"opened by 'radixd self-test' in pool {pool}" in daemon.log.read_text())
    pid = daemon.process.pid
    (probe,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(probe)


@pytest.mark.parametrize("end", ["killed", "silent"])
def test_a_probe_that_gives_no_answer_says_nothing_about_the_next_pool(
    start_daemon: StartDaemon, folder: Path, held: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    if end == "silent":
        monkeypatch.setenv(estranged_daemon.PATIENCE, "5")
    daemon = start_daemon(*config(folder, "one", "two"))
    probe = probe_of(daemon, "one")
    os.kill(probe, signal.SIGSTOP)
    held.unlink()
    if end == "killed":
        os.kill(probe, signal.SIGKILL)
    eventually(lambda: daemon.health("radixd.v1.Cache") == SERVING)
    assert [daemon.health(f"pool.{name}") for name in ("one", "two")] == [NOT_SERVING, SERVING]
    assert not Path(f"/proc/{probe}").exists()


def test_a_stop_is_not_kept_waiting_for_it(start_daemon: StartDaemon, folder: Path, held: Path) -> None:
    daemon = start_daemon(*config(folder, "one"))
    probe = probe_of(daemon, "one")
    daemon.process.terminate()
    assert daemon.process.wait(PATIENCE_S) == 0
    assert not Path(f"/proc/{probe}").exists()
    assert not daemon.socket.exists()
    assert not daemon.attach_socket.exists()


@pytest.mark.parametrize("by", ["mmap", "torch"])
def test_the_probe_finds_and_complements_what_a_worker_sees(start_daemon: StartDaemon, folder: Path, by: str) -> None:
    daemon = start_daemon(*config(folder, "one")).serving()
    with Client(str(daemon.socket)) as client, client.open_session(model=MODEL, name="me") as session:
        ticket = session.ticket()
        with attach(ticket) as memory:
            memory.views[1].buffer[:3] = torch.tensor([1, 2, 255], dtype=torch.uint8)
            line = json.dumps({"ticket": ticket.to_json(), "nbytes": 3, "by": by})
            found = json.loads(answer(line))["found"]
            assert found == [hashlib.sha256(bytes(content)).hexdigest() for content in ([0, 0, 0], [1, 2, 255])]
            assert [views.buffer[:4].tolist() for views in memory.views] == [[255, 255, 255, 0], [254, 253, 0, 0]]
        refused = ticket.to_json().replace(ticket.secret.hex(), "00" * 16)
        line = json.dumps({"ticket": refused, "nbytes": 3, "by": by})
        assert "the secret is not that of session" in json.loads(answer(line))["error"]
