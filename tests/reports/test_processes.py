"""Field reports of groups B, F and G that only show over real gRPC and between real processes."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from radixd.v1 import cache_pb2 as pb
from radixd.v1 import session_pb2, types_pb2
from tests.contract.caller import Caller, ref
from tests.contract.service import LedgerPool, Service
from tests.e2e.daemon_process import PATIENCE_S, DaemonProcess, eventually
from tests.sequences import PAGE, ramp, seq

IDLE_STREAM = """
import sys, time, grpc
from radixd.v1 import cache_pb2 as pb, cache_pb2_grpc
address, session_id, secret, epoch = sys.argv[1], int(sys.argv[2]), bytes.fromhex(sys.argv[3]), int(sys.argv[4])
with grpc.insecure_channel(address) as channel:
    def batches():
        yield pb.Batch(call=pb.Call(session_id=session_id, secret=secret, epoch=epoch, seq=1))
        time.sleep(3_600)
    for reply in cache_pb2_grpc.CacheStub(channel).Schedule(batches()):
        print("open", flush=True)
"""


@pytest.fixture
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., DaemonProcess]]:
    """Starts daemons that end with the test."""
    started: list[DaemonProcess] = []

    def start(*flags: str) -> DaemonProcess:
        started.append(DaemonProcess(Path(tmp_path_factory.mktemp("d", numbered=True)), *flags))
        return started[-1].serving()

    yield start
    for it in started:
        it.stop()


async def test_namespaces_reach_the_cache(tmp_path: Path) -> None:
    """B2: a salt that the front end accepted never reached the cache. Five namespaces, the same tokens."""
    namespaces = [
        types_pb2.Namespace(),
        types_pb2.Namespace(cache_salt=b"ab"),
        types_pb2.Namespace(extra_key=b"ab"),
        types_pb2.Namespace(extra_key=b"a", cache_salt=b"b"),
        types_pb2.Namespace(extra_key=b"b", cache_salt=b"a"),
    ]
    async with Service(tmp_path / "s", LedgerPool("main", 32)) as service:
        one, other = await Caller.open(service), await Caller.open(service, model=b"model-2")
        for caller in (one, other):
            for namespace in namespaces:
                match = pb.Match(namespace=namespace, tokens=seq("AB"), max_tokens=2 * PAGE)
                for expected in (0, 2 * PAGE):
                    reply = await caller.say(match)
                    assert reply.results[0].match.device_tokens == expected
                    lease = await caller.acquire(seq("AB"), namespace=namespace)
                    assert lease.device_tokens == (PAGE if expected else 0)
                    await caller.say(pb.Release(lease=ref(lease.lease_id), publish_to=2 * PAGE))


def test_every_message_that_carries_a_prompt_carries_its_namespace() -> None:
    """B2: checked on the contract itself. Verbs on a lease have the lease's."""
    for verb in pb.Operation.DESCRIPTOR.oneofs_by_name["verb"].fields:
        fields = verb.message_type.fields_by_name
        assert "tokens" not in fields or "namespace" in fields or "lease" in fields, verb.name


async def test_every_failure_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F5: a handler raised, no reply was sent, and the client's futures piled up."""
    async with Service(tmp_path / "s", LedgerPool("main", 32)) as service:
        caller = await Caller.open(service)
        monkeypatch.setattr(service.pool.cache, "acquire", lambda *_, **__: 1 // 0)
        for _ in range(200):
            reply = await caller.exchange(caller.batch(pb.Acquire(tokens=seq("A"))))
            assert reply.results[0].status.code == grpc.StatusCode.INTERNAL.value[0]
        monkeypatch.undo()
        assert (await caller.acquire(seq("A"))).allocated == PAGE
        assert service.pool.broken is None


def test_clients_killed_with_open_streams_leave_the_daemon_serving(daemon: Callable[..., DaemonProcess]) -> None:
    """F2, F10: threads stuck yielding to vanished clients drained the pool of threads."""
    it = daemon()
    clients = []
    for _ in range(8):
        opened = it.open_session()
        arguments = (f"unix:{it.socket}", str(opened.session_id), opened.secret.hex(), str(opened.epoch))
        command = (sys.executable, "-c", IDLE_STREAM, *arguments)
        clients.append((opened, subprocess.Popen(command, stdout=subprocess.PIPE, text=True)))
    for opened, client in clients:
        assert client.stdout is not None
        assert client.stdout.readline() == "open\n"
        session = it.listed(opened.session_id)
        assert session is not None
        assert session.streaming
    for _, client in clients:
        client.kill()
        client.wait()
        client.stdout.close()  # type: ignore[union-attr]
    assert it.open_session().session_id
    for opened, _ in clients:
        eventually(lambda at=opened: (session := it.listed(at.session_id)) is None or not session.streaming)


def test_a_reaped_client_is_told_and_can_come_back(daemon: Callable[..., DaemonProcess]) -> None:
    """F4: an idle rank that was reaped had no way back but a restart."""
    it = daemon()
    opened = it.open_session()
    call = pb.Call(session_id=opened.session_id, secret=opened.secret, epoch=opened.epoch, seq=1)
    close = session_pb2.CloseSessionRequest(session_id=call.session_id, secret=call.secret, epoch=call.epoch)
    it.sessions.CloseSession(close, timeout=PATIENCE_S)
    with pytest.raises(grpc.RpcError) as refusal:
        it.cache.Match(pb.MatchRequest(call=call, match=pb.Match(tokens=seq("A"))), timeout=PATIENCE_S)
    assert refusal.value.code() is grpc.StatusCode.NOT_FOUND
    assert it.open_session().session_id != opened.session_id


def test_a_million_tokens_travel_both_ways(daemon: Callable[..., DaemonProcess]) -> None:
    """G2: gRPC's default limit of 4 MiB was hit by large lists; above a stated limit nothing is half done."""
    it = daemon("--tokens", "1600000")
    opened = it.open_session()
    limit = opened.limits.tokens
    assert limit >= 1_500_000
    call = pb.Call(session_id=opened.session_id, secret=opened.secret, epoch=opened.epoch)

    def acquire(seq_number: int, tokens: int) -> pb.AcquireResult:
        call.seq = seq_number
        request = pb.AcquireRequest(call=call, acquire=pb.Acquire(tokens=ramp(tokens)))
        return it.cache.Acquire(request, timeout=PATIENCE_S).result

    lease = acquire(1, 1_500_000)
    assert len(lease.pages) == 4 * -(-1_500_000 // PAGE)
    call.seq = 2
    release = pb.Release(lease=ref(lease.lease_id), publish_to=1_500_000)
    released = it.cache.Release(pb.ReleaseRequest(call=call, release=release), timeout=PATIENCE_S)
    assert released.result.published == 1_500_000 // PAGE * PAGE
    free = it.ledger()
    with pytest.raises(grpc.RpcError) as refusal:
        acquire(3, limit + 1)
    assert refusal.value.code() in (grpc.StatusCode.OUT_OF_RANGE, grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert str(limit) in refusal.value.details()
    assert it.ledger() == free
    assert acquire(4, 1_500_000).device_tokens == 1_499_968
