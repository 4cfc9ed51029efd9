"""Start, serve, drain, stop: also when it is killed, and when there are two of it."""

import re
import signal
import stat
import threading
import urllib.request
from collections.abc import Iterator
from typing import TypeVar

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from radixd.v1 import cache_pb2
from tests.e2e.conftest import StartDaemon
from tests.e2e.daemon_process import PATIENCE_S, SERVING, DaemonProcess, radixd

Request = TypeVar("Request")


def open_ended(request: Request) -> Iterator[Request]:
    """A stream that says one thing and does not close."""
    yield request
    threading.Event().wait()


def scrape(daemon: DaemonProcess) -> dict[str, float]:
    """Series and values."""
    found = re.search(r"metrics on (\S+)", daemon.log.read_text())
    assert found
    with urllib.request.urlopen(found[1], timeout=PATIENCE_S) as reply:
        lines = reply.read().decode().splitlines()
    series = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in series}


def test_sockets_are_the_users_alone(daemon: DaemonProcess) -> None:
    for path in (daemon.socket, daemon.attach_socket):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_health_speaks_for_every_service(daemon: DaemonProcess) -> None:
    for service in ("", "radixd.v1.Cache", "radixd.v1.Sessions", "radixd.v1.Admin"):
        assert daemon.health(service) == SERVING


def test_reflection_lists_the_services(daemon: DaemonProcess) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(daemon.channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    (reply,) = stub.ServerReflectionInfo(iter([request]), timeout=PATIENCE_S)
    names = {service.name for service in reply.list_services_response.service}
    assert names >= {"radixd.v1.Cache", "radixd.v1.Sessions", "radixd.v1.Admin", "grpc.health.v1.Health"}


def test_a_second_daemon_leaves_the_first_alone(daemon: DaemonProcess, start_daemon: StartDaemon) -> None:
    session = daemon.open_session()
    second = start_daemon()
    assert second.process.wait(PATIENCE_S) == 1
    message = f"another radixd (pid {daemon.process.pid}) holds {daemon.socket}.lock"
    assert message in daemon.log.read_text()
    assert daemon.health() == SERVING
    assert daemon.listed(session.session_id) is not None
    assert daemon.open_session().epoch == session.epoch


def test_after_a_kill_the_next_one_binds_under_a_new_epoch(daemon: DaemonProcess, start_daemon: StartDaemon) -> None:
    first = daemon.open_session()
    daemon.process.kill()
    daemon.process.wait()
    assert daemon.socket.is_socket()  # left behind
    second = start_daemon().serving()
    assert second.open_session().epoch > first.epoch


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(daemon: DaemonProcess, number: signal.Signals) -> None:
    daemon.process.send_signal(number)
    assert daemon.process.wait(PATIENCE_S) == 0
    assert not daemon.socket.exists()
    assert not daemon.attach_socket.exists()
    assert daemon.socket.with_name("r.sock.lock").exists()


def test_an_open_stream_does_not_hold_the_drain(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--drain-seconds", "3600").serving()
    session = daemon.open_session()
    call = cache_pb2.Call(session_id=session.session_id, secret=session.secret, epoch=session.epoch, seq=1)
    stream = daemon.cache.Schedule(open_ended(cache_pb2.Batch(call=call)))
    assert next(stream).seq == 1
    daemon.process.terminate()
    with pytest.raises(grpc.RpcError) as raised:
        next(stream)
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    assert daemon.process.wait(PATIENCE_S) == 0


def test_what_is_in_the_way_is_named(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--tokens", "1000000000000")
    assert daemon.process.wait(PATIENCE_S) == 2
    daemon = start_daemon("--device", "cpu", "--geometry", "glm-5.3", "--tokens", "300000000")
    assert daemon.process.wait(PATIENCE_S) == 1
    assert "make the pools smaller" in daemon.log.read_text()
    assert not daemon.socket.exists()
    daemon.socket.write_text("mine")
    daemon = start_daemon()
    assert daemon.process.wait(PATIENCE_S) == 1
    assert "exists and is no socket" in daemon.log.read_text()
    assert daemon.socket.read_text() == "mine"
    daemon.socket.unlink()
    daemon.attach_socket.symlink_to("nowhere")
    daemon = start_daemon()
    assert daemon.process.wait(PATIENCE_S) == 1
    assert "Traceback" not in daemon.log.read_text()
    assert daemon.attach_socket.is_symlink()


def test_one_scrape_adds_up(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--metrics", "127.0.0.1:0").serving()
    session = daemon.open_session("a client's own words")
    tokens = b"".join(i.to_bytes(4, "little") for i in range(200))
    call = cache_pb2.Call(session_id=session.session_id, secret=session.secret, epoch=session.epoch, seq=1)
    daemon.cache.Acquire(cache_pb2.AcquireRequest(call=call, acquire=cache_pb2.Acquire(tokens=tokens)))
    scraped = scrape(daemon)
    pages = {name: value for name, value in scraped.items() if name.startswith("radixd_pages{")}
    assert len(pages) == 6
    assert sum(pages.values()) == scraped['radixd_pool_pages{pool="default",tier="device"}'] == 101
    assert scraped['radixd_pages{pool="default",state="leased",tier="device"}'] == 4
    assert scraped['radixd_requested_tokens_total{pool="default"}'] == 200
    assert scraped['radixd_hit_tokens_total{pool="default",tier="device"}'] == 0
    assert scraped['radixd_sessions{pool="default",state="live"}'] == 1
    assert scraped['radixd_leases{pool="default",state="active"}'] == 1


def test_the_command_line_speaks_to_it(daemon: DaemonProcess) -> None:
    session = daemon.open_session("sglang-0")
    target = ("--target", str(daemon.socket))
    status = radixd("status", *target)
    assert status.returncode == 0
    assert "tiny" in status.stdout
    assert "'sglang-0'" in radixd("sessions", *target).stdout
    assert "the ledger adds up: 100 pages" in radixd("check", *target).stdout
    assert radixd("tree", *target).returncode == 0
    assert "generation 2" in radixd("flush", *target).stdout
    assert "0 pages evicted" in radixd("evict", "5", *target).stdout
    assert radixd("reap", str(session.session_id), "another", *target).returncode == 1
    assert radixd("reap", str(session.session_id), "sglang-0", *target).returncode == 0
    assert daemon.listed(session.session_id) is None


def test_the_command_line_says_what_is_wrong_in_one_line(daemon: DaemonProcess) -> None:
    absent = radixd("status", "--target", f"{daemon.socket}.absent")
    assert absent.returncode == 1
    assert absent.stderr.startswith("radixd status: no daemon answers at")
    assert absent.stderr.count("\n") == 1
    for arguments, reason in (
        (("flush", "--pool", "other"), "NO_POOL"),
        (("reap", "7", "nobody"), "NO_SESSION"),
        (("tree", "--max-nodes", "200000"), "BAD_FIELD"),
    ):
        refused = radixd(*arguments, "--target", str(daemon.socket))
        assert refused.returncode == 1
        assert refused.stderr.count("\n") == 1
        assert refused.stderr.endswith(f" ({reason})\n")
        assert "OpenSession" not in refused.stderr
        assert "open a new one" not in refused.stderr, "that is for clients"
