"""The attach socket under clients that do not behave."""

import asyncio
import os
import socket
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from radixd.gpu_pool.attach_wire import AttachRefused, AttachReply, AttachRequest, read_reply, send_request
from radixd.server import attach
from radixd.server.attach import AttachServer
from radixd.server.config.file import read_config
from radixd.server.gate import Gate, State
from radixd.server.pools.copier import Copier
from radixd.server.pools.pool import Pool
from radixd.server.sessions.limits import Limits
from radixd.server.sessions.liveness import Liveness
from radixd.server.sessions.registry import SessionRegistry
from tests.descriptors import open_descriptors, settled_descriptors

PENDING = 3


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[AttachServer, Path, Gate]]:
    """Has room for three handshakes, and no session at all."""
    monkeypatch.setattr(attach, "MAX_PENDING", PENDING)
    copier = Copier()
    (config,) = read_config(None, {}, {"geometry": "tiny", "tokens": 640, "device": "meta"}).pools
    registry = SessionRegistry({"default": Pool(config, Limits(), copier, epoch=1)}, 1, Limits(), Liveness(), "")
    gate = Gate()
    gate.state = State.SERVING
    with tempfile.TemporaryDirectory(prefix="rx") as folder:
        path = Path(folder) / "a"
        server = AttachServer(path, registry, gate, epoch=1)
        server.start()
        yield server, path, gate
        await server.close()
    copier.close()


def connected(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(str(path))
    return connection


def asked(path: Path) -> AttachReply:
    with connected(path) as connection:
        send_request(connection, AttachRequest(1, 1, b"secret", os.getpid(), "worker"))
        return read_reply(connection)


async def test_silent_connections_give_way_after_their_deadline(
    server: tuple[AttachServer, Path, Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, path, _ = server
    with monkeypatch.context() as soon:  # for these alone: who is to be answered has its whole time
        soon.setattr(attach, "HANDSHAKE_SECONDS", 0.1)
        silent = await asyncio.to_thread(lambda: [connected(path) for _ in range(PENDING + 2)])
    with pytest.raises(AttachRefused, match="NO_SESSION"):
        await asyncio.to_thread(asked, path)
    assert len(silent) == PENDING + 2


async def test_nobody_attaches_to_a_daemon_that_drains(server: tuple[AttachServer, Path, Gate]) -> None:
    _, path, gate = server
    gate.state = State.DRAINING
    with pytest.raises(AttachRefused, match="DRAINING"):
        await asyncio.to_thread(asked, path)


async def test_a_refusal_leaves_no_descriptor_open(server: tuple[AttachServer, Path, Gate]) -> None:
    _, path, _ = server

    with pytest.raises(AttachRefused):
        await asyncio.to_thread(asked, path)
    before = settled_descriptors()
    for _ in range(20):
        with pytest.raises(AttachRefused):
            await asyncio.to_thread(asked, path)
    assert len(open_descriptors()) <= len(before) + 1


async def test_a_closed_server_removes_its_socket(server: tuple[AttachServer, Path, Gate]) -> None:
    attach_server, path, _ = server
    await attach_server.stop_accepting()
    assert not path.exists()
    with pytest.raises(OSError, match="No such file"):
        connected(path)
