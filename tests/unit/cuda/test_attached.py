"""A pool on GPUs as another process maps it: the same bytes, whatever the GPUs' numbers, and nothing left behind."""

import gc
import os
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from radixd.client.attach import Attachment, attach
from radixd.client.errors import CannotMap, StaleEpoch
from radixd.client.ticket import AttachTicket
from radixd.gpu_pool.attach_wire import AttachReply
from radixd.gpu_pool.handle import Handle
from radixd.gpu_pool.memory import PoolMemory
from tests.descriptors import open_descriptors, settled_descriptors
from tests.fake_cuda.control import FakeGpus
from tests.fake_cuda.plugin import MakeFakeGpus
from tests.unit.cuda.pool_process import LAYOUT, PoolProcess, serve

StartPool = Callable[..., PoolProcess]


@pytest.fixture
def gpus(make_fake_gpus: MakeFakeGpus) -> FakeGpus:
    return make_fake_gpus(3)


@pytest.fixture
def start_pool(gpus: FakeGpus, tmp_path: Path) -> Iterator[StartPool]:
    """Starts processes that own a pool on the same socket, one at a time; the last one ends in order."""
    started: list[PoolProcess] = []

    def start(epoch: int = 1, count: int = 2, pid: int | None = None, visible: str | None = None) -> PoolProcess:
        started.append(PoolProcess(gpus.env(visible), tmp_path / "attach", epoch, count, pid))
        return started[-1]

    yield start
    for process in started:
        if process.process.returncode is None:
            process.end()


@pytest.fixture
def ticket(tmp_path: Path) -> Callable[[int], AttachTicket]:
    return lambda epoch: AttachTicket(str(tmp_path / "attach"), 7, bytes(16), epoch, LAYOUT.geometry.fingerprint)


Ticket = Callable[[int], AttachTicket]


def _holds(attachment: Attachment, rank: int, page: int, value: int) -> bool:
    return all((rows[page] == value).all() for rows in attachment.views[rank].layer_rows)


def test_both_processes_see_each_others_writes_though_they_number_the_gpus_otherwise(
    gpus: FakeGpus, start_pool: StartPool, ticket: Ticket, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = start_pool(visible="2,0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    for rank in range(2):
        pool.ask("fill", rank, 3, 40 + rank)
    with attach(ticket(1)) as attachment:
        assert attachment.layout == LAYOUT
        for rank in range(2):
            assert _holds(attachment, rank, 3, 40 + rank)
            for rows in attachment.views[rank].layer_rows:
                rows[5] = 60 + rank
        del rows
        assert [pool.ask("page", rank, 5) for rank in range(2)] == [[60], [61]]
    with pytest.raises(RuntimeError, match="was closed"):
        _ = attachment.views
    attachment.close()
    pool.end()
    assert not gpus.violations()


def test_a_worker_maps_the_ranks_whose_gpus_it_sees(
    gpus: FakeGpus, start_pool: StartPool, ticket: Ticket, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = start_pool()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus.uuids[1])
    pool.ask("fill", 1, 2, 9)
    with attach(ticket(1), ranks=[1]) as attachment:
        assert len(attachment.views) == 1
        assert _holds(attachment, 0, 2, 9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(CannotMap, match=rf"{gpus.uuids[0]}, which this process does not see .*ranks=\[") as missing:
            attach(ticket(1))
        assert gpus.uuids[1] in str(missing.value)
        with pytest.raises(CannotMap, match="does not see"):
            attach(ticket(1), ranks=[1, 0])
        gc.collect()
    for ranks in ([2], [-1]):
        with pytest.raises(ValueError, match="the pool has devices 0 to 1"):
            attach(ticket(1), ranks=ranks)
    with attach(ticket(1), ranks=[]) as nothing:
        assert nothing.views == ()


def test_what_is_likely_set_wrong_is_named(gpus: FakeGpus, start_pool: StartPool, ticket: Ticket) -> None:
    start_pool()
    for call, error, names in [
        ("cudaIpcOpenMemHandle", "cudaErrorInvalidResourceHandle", "shareProcessNamespace or hostPID.*same driver"),
        ("cudaSetDevice", "cudaErrorDevicesUnavailable", "cannot be opened .*cudaErrorDevicesUnavailable"),
        ("cudaGetDeviceCount", "cudaErrorNoDevice", f"pool lies on GPU {gpus.uuids[0]}.*cudaErrorNoDevice"),
    ]:
        gpus.fail(call, error, pid=os.getpid())
        with pytest.raises(CannotMap, match=names):
            attach(ticket(1))
    attach(ticket(1)).close()


def test_a_torch_without_cuda_is_named_and_nothing_stays_open(
    gpus: FakeGpus, start_pool: StartPool, ticket: Ticket, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_pool()

    def without_cuda(*_: object, **__: object) -> torch.Tensor:
        raise AssertionError("Torch not compiled with CUDA enabled")

    with monkeypatch.context() as patched:
        patched.setattr(torch, "as_tensor", without_cuda)
        with pytest.raises(CannotMap, match="install a CUDA build"):
            attach(ticket(1))
    gc.collect()


def test_equal_pids_are_refused_naming_the_shared_namespace(
    gpus: FakeGpus, start_pool: StartPool, ticket: Ticket
) -> None:
    start_pool(pid=os.getpid())
    with pytest.raises(CannotMap, match=rf"pid {os.getpid()} and so has this process.*shareProcessNamespace.*hostPID"):
        attach(ticket(1))


def test_attaching_to_the_next_daemon_voids_the_old_views_first(
    gpus: FakeGpus, start_pool: StartPool, ticket: Ticket
) -> None:
    old = start_pool(epoch=1)
    first = attach(ticket(1))
    also = attach(ticket(1))
    old.kill()
    new = start_pool(epoch=2)
    new.ask("fill", 0, 1, 5)
    free = _free_bytes()
    with attach(ticket(2)) as second:
        for stale in (first, also):
            with pytest.raises(StaleEpoch, match="restarted"):
                _ = stale.views
        assert _holds(second, 0, 1, 5)
        assert _free_bytes() > free, "the old pool's memory is free again"
        with attach(ticket(2)) as third:
            assert _holds(third, 0, 1, 5)
            assert _holds(second, 0, 1, 5)


def _free_bytes() -> int:
    from radixd.gpu_pool.cuda.gpu import find_gpus

    return find_gpus((), 1)[0].free_bytes()


def test_tensors_that_outlive_their_attachment_keep_the_memory_and_are_told_of(
    gpus: FakeGpus, start_pool: StartPool, ticket: Ticket
) -> None:
    pool = start_pool(count=1)
    attachment = attach(ticket(1))
    kept = attachment.views[0].region("latent", 0, "rope")
    with pytest.warns(ResourceWarning, match=rf"{LAYOUT.nbytes} bytes of GPU {gpus.uuids[0]} stay"):
        attachment.close()
    kept[3, 3] = 1.0
    assert 0 not in pool.ask("fill", 0, 4, 8)  # type: ignore[operator]
    assert pool.attached() == 1, "by which the daemon knows that its memory is mapped"
    before = _free_bytes()
    pool.kill()
    assert _free_bytes() == before, "still mapped here"
    del kept
    assert _free_bytes() > before


def test_tensors_whose_attachment_was_never_closed_keep_its_connection(
    gpus: FakeGpus, start_pool: StartPool, ticket: Ticket
) -> None:
    pool = start_pool()
    views = attach(ticket(1)).views
    kept = views[1].region("latent", 0, "rope")
    del views
    gc.collect()
    assert pool.attached() == 1
    del kept
    gc.collect()
    assert pool.attached() == 0


CLOSER = """
import sys
from radixd.client.attach import attach
from radixd.client.ticket import AttachTicket
attachment = attach(AttachTicket.from_json(sys.argv[1]))
print("attached", flush=True)
sys.stdin.readline()
attachment.close()
print("closed", flush=True)
sys.stdin.readline()
"""


def test_memory_that_cannot_be_unmapped_keeps_its_connection_as_long_as_the_process_lives(
    gpus: FakeGpus, start_pool: StartPool, ticket: Ticket
) -> None:
    pool = start_pool()
    command = [sys.executable, "-c", CLOSER, ticket(1).to_json()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=gpus.env()) as closer:
        assert closer.stdin is not None
        assert closer.stdout is not None
        assert closer.stdout.readline() == "attached\n"
        gpus.fail("cudaDeviceSynchronize", "cudaErrorStreamCaptureUnsupported", pid=closer.pid)
        closer.stdin.write("\n")
        closer.stdin.flush()
        assert closer.stdout.readline() == "closed\n"
        assert pool.attached() == 1
        closer.kill()
    assert pool.attached() == 0


def test_a_ticket_of_an_earlier_daemon_costs_no_later_attachment(
    gpus: FakeGpus, start_pool: StartPool, ticket: Ticket
) -> None:
    start_pool(epoch=2)
    with attach(ticket(2)) as attachment:
        with pytest.raises(StaleEpoch):
            attach(ticket(1))
        assert len(attachment.views) == 2


def test_a_gpu_that_mps_shares_with_this_process_alone_is_refused(
    gpus: FakeGpus, start_pool: StartPool, ticket: Ticket, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = start_pool()
    gpus.fail("cudaDeviceGetAttribute", "cudaErrorInvalidValue", pid=os.getpid())
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
    with pytest.raises(CannotMap, match=r"shared by MPS in this process.*CUDA_MPS_PIPE_DIRECTORY"):
        attach(ticket(1))
    gc.collect()
    assert pool.attached() == 0


def test_host_memory_and_shapes_are_attached_by_the_same_call(tmp_path: Path, ticket: Ticket) -> None:
    with PoolMemory.allocate(LAYOUT, "cpu") as memory, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "attach"))
        listener.listen()
        reply = AttachReply(1, LAYOUT, (*memory.export(), Handle("meta", LAYOUT.nbytes)))
        connections: list[socket.socket] = []
        server = threading.Thread(target=serve, args=(listener, reply, connections), daemon=True)
        before = settled_descriptors()
        server.start()
        with pytest.raises(ValueError, match="0 to 1"):
            attach(ticket(1), ranks=[2])
        with attach(ticket(1)) as attachment:
            ours, shapes = attachment.views
            ours.layer_rows[0][3] = 7
            assert (memory.views[0].layer_rows[0][3] == 7).all()
            assert shapes.buffer.is_meta
            attachment.invalidate(StaleEpoch("the session is over"))
            with pytest.raises(StaleEpoch, match="over"):
                _ = attachment.views
        del ours, shapes  # a mapping has a descriptor of its own
        listener.shutdown(socket.SHUT_RDWR)
        server.join()
        for connection in connections:
            connection.close()
        assert len(connections) == 2
        assert len(open_descriptors()) == len(before)


def test_an_installation_without_the_bindings_says_which_extra_brings_them() -> None:
    program = "import sys; sys.modules['cuda'] = None; import radixd.gpu_pool.cuda.gpu"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "install radixd with its extra `cuda`" in run.stderr


def test_a_gpu_that_is_lost_ends_an_attachment_all_the_same(
    gpus: FakeGpus, start_pool: StartPool, ticket: Ticket, caplog: pytest.LogCaptureFixture
) -> None:
    pool = start_pool(count=1)
    attachment = attach(ticket(1))
    gpus.lose(0)
    attachment.close()
    assert "cannot be unmapped before this process ends: cudaSetDevice: cudaErrorUnknown" in caplog.text
    pool.kill()
