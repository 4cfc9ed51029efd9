"""The attach handshake: memory reaches a second process; garbage, silence and floods end in one clear error."""

import asyncio
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from radixd.gpu_pool import framing
from radixd.gpu_pool.attach_wire import (
    MAX_REPLY_BYTES,
    MAX_REQUEST_BYTES,
    VERSION,
    AttachRefused,
    AttachReply,
    AttachRequest,
    read_reply,
    read_request,
    read_request_async,
    send_reply,
    send_reply_async,
    send_request,
)
from radixd.gpu_pool.framing import FrameError
from radixd.gpu_pool.handle import GpuHandle, Handle
from radixd.gpu_pool.layout import Layout
from radixd.gpu_pool.presets import load_geometry
from tests.descriptors import open_descriptors, settled_descriptors
from tests.unit.gpu_pool.pools import MakePool

REQUEST = AttachRequest(epoch=2**63, session_id=2**64 - 1, secret=bytes(range(16)), pid=os.getpid(), role="worker")
EPOCH = 1_790_000_000_123_456_789
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """(client, daemon), both blocking."""
    client, daemon = socket.socketpair()
    with client, daemon:
        yield client, daemon


@pytest.fixture(autouse=True)
def no_descriptor_leaks() -> Iterator[None]:
    """Whatever a peer sends, every descriptor that arrived is either handed on or closed."""
    before = settled_descriptors()
    yield
    assert open_descriptors() <= before


def _send_raw(sock: socket.socket, body: object, fds: list[int] | None = None) -> None:
    """A well-framed message of any content."""
    encoded = json.dumps(body).encode()
    socket.send_fds(sock, [framing.HEADER.pack(framing.MAGIC, len(encoded)) + encoded], fds or [])


def _reply_for(layout: Layout, *handles: Handle) -> AttachReply:
    return AttachReply(EPOCH, layout, handles)


def _reply_body(layout: Layout) -> dict[str, object]:
    """A reply's fields, without its devices."""
    fingerprint = layout.geometry.fingerprint.hex()
    return {"version": VERSION, "epoch": 1, "geometry_fingerprint": fingerprint, "layout": layout.to_dict()}


def test_a_request_arrives_as_it_was_sent_with_the_clients_pidfd(pair: Pair) -> None:
    client, daemon = pair
    pidfd = os.pidfd_open(os.getpid())
    send_request(client, REQUEST, pidfd)
    received = read_request(daemon)
    assert received.request == REQUEST
    assert received.pidfd not in (None, pidfd)
    assert received.pidfd is not None
    info = Path(f"/proc/self/fdinfo/{received.pidfd}").read_text()
    assert f"Pid:\t{os.getpid()}\n" in info
    assert not os.get_inheritable(received.pidfd)
    os.close(received.pidfd)
    os.close(pidfd)
    send_request(client, REQUEST)
    assert read_request(daemon).pidfd is None


SECOND_PROCESS = """
import os, socket, sys
from radixd.gpu_pool.attach_wire import AttachRequest, read_reply, send_request
from radixd.gpu_pool.mapping import map_buffer
from radixd.gpu_pool.views import torch_views

sock = socket.socket(fileno=int(sys.argv[1]))
send_request(sock, AttachRequest(1, 7, bytes(16), os.getpid(), "worker"), os.pidfd_open(os.getpid()))
reply = read_reply(sock)
pools = [torch_views(map_buffer(device.fd, device.nbytes), reply.layout) for device in reply.devices]
reply.close()
for rank, views in enumerate(pools):
    rope = views.region("latent", 1, "rope")
    assert rope[3, 5, 0].item() == rank + 1, rope[3, 5, 0]
    rope[3, 5, 1] = 10 + rank
print(reply.epoch, sock.recv(1))
"""


def test_a_second_process_maps_every_devices_memory_and_both_see_all_writes(make_pool: MakePool, pair: Pair) -> None:
    client, daemon = pair
    memory = make_pool("tiny", count=2)
    for rank, views in enumerate(memory.views):
        views.region("latent", 1, "rope")[3, 5] = rank + 1
    command = [sys.executable, "-c", SECOND_PROCESS, str(client.fileno())]
    with subprocess.Popen(command, pass_fds=[client.fileno()], stdout=subprocess.PIPE, text=True) as process:
        client.close()
        received = read_request(daemon, timeout_s=60)
        assert received.request.pid == process.pid
        assert received.pidfd is not None
        os.close(received.pidfd)
        send_reply(daemon, _reply_for(memory.layout, *memory.export()))
        daemon.shutdown(socket.SHUT_WR)
        output, _ = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, f"{EPOCH} b''\n")
    for rank, views in enumerate(memory.views):
        assert views.region("latent", 1, "rope")[3, 5, :3].tolist() == [rank + 1, 10 + rank, rank + 1]


def test_a_pool_without_memory_sends_its_shapes_alone(pair: Pair) -> None:
    client, daemon = pair
    layout = Layout(load_geometry("glm-5.3"), "layer_first", 16_384)
    sent = _reply_for(layout, Handle("meta", layout.nbytes), Handle("meta", layout.nbytes))
    send_reply(daemon, sent)
    assert read_reply(client) == sent


def test_a_refusal_arrives_with_its_reason(pair: Pair) -> None:
    client, daemon = pair
    send_reply(daemon, AttachRefused("BAD_SECRET", "the secret is not the session's" + "!" * 10_000))
    with pytest.raises(AttachRefused, match="the secret is not") as refused:
        read_reply(client)
    assert refused.value.reason == "BAD_SECRET"
    assert len(refused.value.message) == 4096


async def test_a_nonblocking_daemon_takes_a_request_in_single_bytes(pair: Pair) -> None:
    client, daemon = pair
    daemon.setblocking(False)
    reading = asyncio.create_task(read_request_async(daemon))
    recorder, record = socket.socketpair()
    with recorder, record:
        send_request(recorder, REQUEST)
        for byte in record.recv(65536):
            client.send(bytes([byte]))
            await asyncio.sleep(0)
    assert (await reading).request == REQUEST


async def test_a_nonblocking_daemon_sends_a_reply_larger_than_the_socket_holds(make_pool: MakePool, pair: Pair) -> None:
    client, daemon = pair
    daemon.setblocking(False)
    daemon.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    memory = make_pool("glm-5.3", pages=1, count=2)
    reading = asyncio.create_task(asyncio.to_thread(read_reply, client))
    await send_reply_async(daemon, _reply_for(memory.layout, *memory.export()))
    reply = await reading
    assert (reply.epoch, reply.layout) == (EPOCH, memory.layout)
    assert [os.fstat(fd).st_size for fd in (d.fd for d in reply.devices) if fd is not None] == [
        memory.layout.nbytes
    ] * 2
    reply.close()


async def test_silence_ends_in_an_error_at_either_end(pair: Pair) -> None:
    client, daemon = pair
    with pytest.raises(FrameError, match=r"within 0\.05 s"):
        read_reply(client, timeout_s=0.05)
    assert client.gettimeout() is None
    daemon.setblocking(False)
    client.sendall(framing.MAGIC)
    with pytest.raises(FrameError, match=r"within 0\.05 s"):
        await read_request_async(daemon, timeout_s=0.05)


async def test_a_peer_that_does_not_read_ends_in_an_error(pair: Pair) -> None:
    _, daemon = pair
    daemon.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    layout = Layout(load_geometry("glm-5.3"), "page_first", 1)
    with pytest.raises(FrameError, match=r"within 0\.05 s"):
        send_reply(daemon, _reply_for(layout, Handle("meta", layout.nbytes)), timeout_s=0.05)
    daemon.setblocking(False)
    with pytest.raises(FrameError, match=r"within 0\.05 s"):
        await send_reply_async(daemon, _reply_for(layout, Handle("meta", layout.nbytes)), timeout_s=0.05)


async def test_a_cancelled_read_leaves_the_loop_and_the_descriptors_clean(pair: Pair) -> None:
    client, daemon = pair
    daemon.setblocking(False)
    null = os.open("/dev/null", os.O_RDONLY)
    socket.send_fds(client, [framing.MAGIC], [null])
    os.close(null)
    reading = asyncio.create_task(read_request_async(daemon))
    await asyncio.sleep(0.01)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert asyncio.get_running_loop().remove_reader(daemon) is False


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(garbage=st.binary(max_size=200), framed=st.booleans())
@example(garbage=b"", framed=False)
@example(garbage=b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", framed=False)
@example(garbage=b"[" * 4000, framed=True)
@example(garbage=b"1" * 4000, framed=True)
@example(garbage=b"\xff\xfe", framed=True)
def test_garbage_is_one_clear_error(garbage: bytes, framed: bool) -> None:
    if framed:
        garbage = framing.HEADER.pack(framing.MAGIC, len(garbage)) + garbage
    for read in (read_request, read_reply):
        near, far = socket.socketpair()
        with near, far:
            far.sendall(garbage)
            far.shutdown(socket.SHUT_WR)
            with pytest.raises(FrameError, match=r"peer|attach frame"):
                read(near)


@pytest.mark.parametrize(
    ("read", "limit"), [(read_request, MAX_REQUEST_BYTES), (read_reply, MAX_REPLY_BYTES)], ids=["request", "reply"]
)
def test_an_announced_flood_is_refused_before_a_byte_of_it_is_awaited(read: object, limit: int, pair: Pair) -> None:
    near, far = pair
    assert callable(read)
    for length in (limit + 1, 2**32 - 1):
        far.sendall(struct.pack("<4sI", framing.MAGIC, length))
        with pytest.raises(FrameError, match=f"{length} bytes, more than {limit}"):
            read(near)


GOOD: dict[str, object] = {
    "version": VERSION,
    "epoch": 1,
    "session_id": 7,
    "secret": "00" * 16,
    "pid": 5,
    "role": "worker",
}


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"version": VERSION + 1}, "version"),
        ({"session_id": -1}, "session_id"),
        ({"session_id": 2**64}, "session_id"),
        ({"session_id": "7"}, "session_id"),
        ({"secret": "xyz"}, "hexadecimal"),
        ({"secret": "00" * 65}, "secret"),
        ({"pid": 2**31}, "pid"),
        ({"role": "operator"}, "role: 'operator' is none of scheduler, worker"),
    ],
)
def test_a_bad_field_of_a_request_is_named(change: dict[str, object], names: str, pair: Pair) -> None:
    client, daemon = pair
    _send_raw(client, GOOD)
    assert read_request(daemon).request.session_id == 7
    _send_raw(client, {**GOOD, **change})
    with pytest.raises(FrameError, match=names):
        read_request(daemon)
    _send_raw(client, {key: value for key, value in GOOD.items() if key not in change})
    with pytest.raises(FrameError, match="missing"):
        read_request(daemon)


def test_descriptors_that_nobody_asked_for_are_closed(pair: Pair) -> None:
    client, daemon = pair
    null = os.open("/dev/null", os.O_RDONLY)
    _send_raw(client, GOOD, [null, null])
    with pytest.raises(FrameError, match="2 file descriptors"):
        read_request(daemon)
    _send_raw(client, GOOD, [null] * (framing.MAX_FDS + 10))
    with pytest.raises(FrameError, match=f"more than {framing.MAX_FDS} file descriptors"):
        read_request(daemon)
    os.close(null)


def test_a_reply_whose_descriptors_do_not_match_its_devices_is_refused(make_pool: MakePool, pair: Pair) -> None:
    client, daemon = pair
    memory = make_pool("tiny")
    (handle,) = memory.export()
    assert handle.fd is not None
    body = _reply_body(memory.layout)
    device = {"kind": "cpu", "nbytes": handle.nbytes}
    for devices, fds, names in [
        ([device, device], [handle.fd], "1 file descriptors for 2 devices"),
        ([device], [handle.fd, handle.fd], "2 file descriptors for 1 devices"),
        ([{**device, "nbytes": 1}], [handle.fd], r"devices\[0\]\.nbytes"),
        ([{**device, "kind": "tpu"}], [handle.fd], r"devices\[0\]\.kind"),
    ]:
        _send_raw(daemon, {**body, "devices": devices}, fds)
        with pytest.raises(FrameError, match=names):
            read_reply(client)


GPU = GpuHandle("GPU-5b0ef3a2-8c3f-4a7e-9c53-0d1f6a2b7c44", bytes(range(64)), 4096, pid=17)


def test_memory_on_gpus_travels_as_handles_without_descriptors(pair: Pair) -> None:
    client, daemon = pair
    layout = Layout(load_geometry("tiny"), "layer_first", 3)
    sent = _reply_for(layout, Handle("cuda", layout.nbytes, gpu=GPU), Handle("cuda", layout.nbytes, gpu=GPU))
    send_reply(daemon, sent)
    assert read_reply(client) == sent


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"uuid": "G" * 65}, r"devices\[0\]\.gpu\.uuid"),
        ({"ipc": "00" * 65}, r"gpu\.ipc: expected a string of 1 to 128"),
        ({"ipc": "00" * 63}, r"gpu\.ipc: 63 bytes, a CUDA IPC handle has 64"),
        ({"ipc": "xy" * 64}, "non-hexadecimal"),
        ({"offset": -1}, r"gpu\.offset"),
        ({"pid": 0}, r"gpu\.pid"),
    ],
)
def test_a_bad_field_of_a_gpus_handle_is_named(pair: Pair, change: dict[str, object], names: str) -> None:
    client, daemon = pair
    layout = Layout(load_geometry("tiny"), "page_first", 3)
    gpu = {"uuid": GPU.uuid, "ipc": GPU.ipc.hex(), "offset": 0, "pid": 1}
    device = {"kind": "cuda", "nbytes": layout.nbytes, "gpu": gpu}
    _send_raw(daemon, {**_reply_body(layout), "devices": [device]})
    assert read_reply(client).devices[0].gpu == GpuHandle(GPU.uuid, GPU.ipc, 0, 1)
    _send_raw(daemon, {**_reply_body(layout), "devices": [{**device, "gpu": {**gpu, **change}}]})
    with pytest.raises(FrameError, match=names):
        read_reply(client)
    _send_raw(daemon, {**_reply_body(layout), "devices": [{**device, "gpu": None}]})
    with pytest.raises(FrameError, match=r"devices\[0\]\.gpu: expected a table"):
        read_reply(client)


def test_a_fingerprint_that_is_not_the_layouts_is_refused(pair: Pair) -> None:
    client, daemon = pair
    layout = Layout(load_geometry("tiny"), "page_first", 3)
    _send_raw(daemon, {**_reply_body(layout), "geometry_fingerprint": "00" * 16, "devices": []})
    with pytest.raises(FrameError, match="geometry_fingerprint: 0000"):
        read_reply(client)


def test_a_connection_that_breaks_is_an_error_and_no_signal(pair: Pair) -> None:
    client, daemon = pair
    daemon.close()
    with pytest.raises(FrameError, match="broke"):
        send_request(client, REQUEST)
    with pytest.raises(FrameError, match="closed the connection"):
        read_reply(client)
