"""Who holds a pool's memory, and what becomes of its pages when the holder dies."""

import os
import signal
import socket
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from radixd.gpu_pool.attach_wire import AttachRefused, AttachReply, AttachRequest, read_reply, send_request
from radixd.gpu_pool.framing import HEADER, MAGIC, FrameError
from radixd.gpu_pool.mapping import map_buffer
from radixd.v1 import cache_pb2, session_pb2
from tests.e2e.conftest import Attach, StartDaemon
from tests.e2e.daemon_process import PATIENCE_S, DaemonProcess, eventually
from tests.e2e.test_daemon_life import open_ended

pytestmark = pytest.mark.usefixtures("memory")

ALL_FREE = (100, 0, 0)


def call_of(session: session_pb2.OpenSessionResponse, seq: int) -> cache_pb2.Call:
    return cache_pb2.Call(
        session_id=session.session_id, secret=session.secret, epoch=session.epoch, seq=seq, launched=seq
    )


def acquire(daemon: DaemonProcess, session: session_pb2.OpenSessionResponse, seq: int = 1) -> None:
    """A lease of four pages, in mid-step."""
    call = call_of(session, seq)
    tokens = b"".join(i.to_bytes(4, "little") for i in range(256))
    daemon.cache.Acquire(
        cache_pb2.AcquireRequest(call=call, acquire=cache_pb2.Acquire(tokens=tokens)), timeout=PATIENCE_S
    )


def connected(daemon: DaemonProcess) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(str(daemon.attach_socket))
    return connection


def asked(
    daemon: DaemonProcess, session: session_pb2.OpenSessionResponse, **other: int | bytes
) -> tuple[socket.socket, AttachReply]:
    connection = connected(daemon)
    request = AttachRequest(session.epoch, session.session_id, session.secret, os.getpid(), "scheduler")
    send_request(connection, replace(request, **other))
    return connection, read_reply(connection, PATIENCE_S)


@pytest.mark.host_memory
def test_the_memory_is_the_same_for_all(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--device", "cpu").serving()
    session = daemon.open_session()
    first = asked(daemon, session)
    second = asked(daemon, session)
    buffers = []
    for _, reply in (first, second):
        assert reply.epoch == session.epoch
        assert reply.layout.num_pages == 100
        (device,) = reply.devices
        assert device.fd is not None
        buffers.append(map_buffer(device.fd, device.nbytes))
        reply.close()
    buffers[0][12345] = 77
    assert buffers[1][12345] == 77
    listed = daemon.listed(session.session_id)
    assert listed is not None
    assert list(listed.pids) == [os.getpid()]


def test_a_pool_without_memory_hands_out_its_layout(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--devices", "2").serving()
    session = daemon.open_session()
    _, reply = asked(daemon, session)
    assert [(device.kind, device.fd) for device in reply.devices] == [("meta", None)] * 2


def test_a_killed_process_gives_its_pages_back(daemon: DaemonProcess, attach: Attach) -> None:
    other, session = daemon.open_session(), daemon.open_session()
    process = attach(daemon, session)
    listed = daemon.listed(session.session_id)
    assert listed is not None
    assert list(listed.pids) == process.pids
    acquire(daemon, session)
    assert daemon.ledger() == (96, 4, 0)
    process.kill()
    eventually(lambda: daemon.ledger() == ALL_FREE)
    assert daemon.listed(session.session_id) is None
    assert daemon.listed(other.session_id) is not None


def test_a_session_lives_until_its_last_process_is_gone(daemon: DaemonProcess, attach: Attach) -> None:
    session = daemon.open_session()
    first, second = attach(daemon, session), attach(daemon, session)
    acquire(daemon, session)
    first.kill()
    eventually(lambda: [*_pids(daemon, session)] == second.pids)
    assert daemon.ledger() == (96, 4, 0)
    second.kill()
    eventually(lambda: daemon.ledger() == ALL_FREE)


def test_a_forked_child_keeps_the_pages_that_it_may_write(daemon: DaemonProcess, attach: Attach) -> None:
    session, marker = daemon.open_session(), daemon.open_session()
    parent = attach(daemon, session, fork=True)
    later = attach(daemon, marker)
    acquire(daemon, session)
    parent.kill()
    # The daemon has seen an end that came after the parent's, so it has seen the parent's.
    later.kill()
    eventually(lambda: daemon.listed(marker.session_id) is None)
    assert daemon.ledger() == (96, 4, 0)
    os.kill(parent.pids[1], signal.SIGKILL)
    eventually(lambda: daemon.ledger() == ALL_FREE)


def test_a_stopped_process_keeps_its_pages_and_its_session_ends(
    start_daemon: StartDaemon, attach: Attach, folder: Path
) -> None:
    config = folder / "c.toml"
    config.write_text("[liveness]\nkeepalive_seconds = 0.1\ngrace_seconds = 0.1\nttl_seconds = 3600")
    daemon = start_daemon(
        "--config", str(config), "--device", "meta", "--geometry", "tiny", "--tokens", "6400"
    ).serving()
    session = daemon.open_session()
    stream = daemon.cache.Schedule(open_ended(cache_pb2.Batch(call=call_of(session, 1))))
    next(stream)
    process = attach(daemon, session)
    acquire(daemon, session, seq=2)
    os.kill(process.pids[0], signal.SIGSTOP)
    stream.cancel()  # the grace begins
    eventually(lambda: daemon.ledger() == (96, 0, 4))  # time revokes ids, and frees nothing
    listed = daemon.listed(session.session_id)
    assert listed is not None
    assert listed.ended
    process.kill()
    eventually(lambda: daemon.ledger() == ALL_FREE)


def test_garbage_is_answered_and_harms_nobody(daemon: DaemonProcess) -> None:
    long, list_, cut = HEADER.pack(MAGIC, 2**32 - 1), HEADER.pack(MAGIC, 2) + b"[]", HEADER.pack(MAGIC, 1) + b"{"
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", long, list_, cut):
        connection = connected(daemon)
        connection.sendall(garbage)
        with pytest.raises(AttachRefused) as raised:
            read_reply(connection, PATIENCE_S)
        assert raised.value.reason == "BAD_FIELD"
        with suppress(ConnectionResetError):  # it left some of the garbage unread
            assert connection.recv(1) == b""
    session = daemon.open_session()
    asked(daemon, session)


def test_wrong_secrets_and_sessions_get_nothing(daemon: DaemonProcess) -> None:
    session = daemon.open_session()
    for other, reason in (
        ({"secret": b"x" * 16}, "BAD_SECRET"),
        ({"session_id": session.session_id + 1}, "NO_SESSION"),
        ({"secret": b"x" * 16, "epoch": session.epoch - 1}, "STALE_EPOCH"),
    ):
        with pytest.raises(AttachRefused) as raised:
            asked(daemon, session, **other)
        assert raised.value.reason == reason
    assert _pids(daemon, session) == ()


def test_an_interrupted_request_leaves_nothing_behind(daemon: DaemonProcess) -> None:
    connection = connected(daemon)
    connection.sendall(HEADER.pack(MAGIC, 100) + b"{")
    connection.shutdown(socket.SHUT_WR)
    with pytest.raises((AttachRefused, FrameError)):
        read_reply(connection, PATIENCE_S)
    session = daemon.open_session()
    asked(daemon, session)


def _pids(daemon: DaemonProcess, session: session_pb2.OpenSessionResponse) -> tuple[int, ...]:
    listed = daemon.listed(session.session_id)
    return tuple(listed.pids) if listed else ()
