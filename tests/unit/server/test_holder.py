"""A holder is gone when its process has ended and nobody has its connection any more; neither alone is proof."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from radixd.server.holder import Holder, HolderError, open_pidfd, peer_pid


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield child
    child.kill()
    child.wait()


async def settle() -> None:
    """Let the loop see what the kernel knows already."""
    for _ in range(5):
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("first", ["exit", "eof"])
async def test_gone_means_ended_and_disconnected(process: subprocess.Popen[bytes], first: str) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    gone = asyncio.Event()
    holder = Holder(1, "worker", ours, os.pidfd_open(process.pid), process.pid)
    holder.watch(lambda _: gone.set())

    def end() -> None:
        process.kill()
        process.wait()

    steps = [end, theirs.close] if first == "exit" else [theirs.close, end]
    steps[0]()
    await settle()
    assert not gone.is_set()
    steps[1]()
    await asyncio.wait_for(gone.wait(), 10)
    assert ours.fileno() == -1


async def test_what_a_client_says_after_the_handshake_is_dropped(process: subprocess.Popen[bytes]) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    gone = asyncio.Event()
    holder = Holder(1, "worker", ours, os.pidfd_open(process.pid), process.pid)
    holder.watch(lambda _: gone.set())
    theirs.send(b"x" * 10_000)
    process.kill()
    process.wait()
    await settle()
    assert not gone.is_set()
    theirs.close()
    await asyncio.wait_for(gone.wait(), 10)


async def test_a_closed_holder_is_never_reported(process: subprocess.Popen[bytes]) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    gone = asyncio.Event()
    holder = Holder(1, "worker", ours, os.pidfd_open(process.pid), process.pid)
    holder.watch(lambda _: gone.set())
    theirs.close()
    process.kill()
    process.wait()
    holder.close()
    await settle()
    assert not gone.is_set()


@pytest.mark.parametrize("watched", [True, False])
async def test_a_released_holder_costs_its_connection_and_is_gone_at_eof(
    process: subprocess.Popen[bytes], watched: bool
) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    pidfd = os.pidfd_open(process.pid)
    gone = asyncio.Event()
    holder = Holder(1, "worker", ours, pidfd, process.pid)
    if watched:
        holder.watch(lambda _: gone.set())
    assert holder.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(pidfd)
    if not watched:
        holder.watch(lambda _: gone.set())
    await settle()
    assert not gone.is_set()
    theirs.close()
    await asyncio.wait_for(gone.wait(), 10)
    assert ours.fileno() == -1


async def test_a_holder_that_has_disconnected_ends_with_its_release(process: subprocess.Popen[bytes]) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    gone = asyncio.Event()
    holder = Holder(1, "worker", ours, os.pidfd_open(process.pid), process.pid)
    holder.watch(lambda _: gone.set())
    theirs.close()
    await settle()
    assert not holder.release()
    assert ours.fileno() == -1
    assert not gone.is_set()


def test_the_kernel_says_who_the_peer_is() -> None:
    ours, theirs = socket.socketpair()
    assert peer_pid(ours) == os.getpid()
    pidfd = open_pidfd(ours, None)
    os.close(pidfd)
    theirs.close()


@pytest.fixture
def old_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("radixd.server.holder.SO_PEERPIDFD", 9999)  # ENOPROTOOPT, as before Linux 6.5


@pytest.mark.usefixtures("old_kernel")
def test_an_old_kernel_needs_the_clients_own_pidfd_or_pid() -> None:
    ours, _theirs = socket.socketpair()
    offered = os.pidfd_open(os.getpid())
    for given in (offered, None):
        pidfd = open_pidfd(ours, given)
        assert f"Pid:\t{os.getpid()}\n" in Path(f"/proc/self/fdinfo/{pidfd}").read_text()
        os.close(pidfd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(offered)


@pytest.mark.usefixtures("old_kernel")
def test_a_descriptor_that_is_no_pidfd_proves_nothing() -> None:
    ours, _theirs = socket.socketpair()
    read, write = os.pipe()
    os.close(write)
    with pytest.raises(HolderError, match="no pidfd"):
        open_pidfd(ours, read)
