"""Pools on GPUs, as the configuration says them."""

from pathlib import Path

import pytest
from cuda.bindings import runtime as cudart

from radixd.gpu_pool.budget.scratch import BATCHED_TOKENS, logits_budget, scratch_bytes
from radixd.server.config import PoolConfig
from radixd.server.config.file import read_config
from radixd.server.config.gpu_share import CONTEXT
from radixd.server.config.table import ConfigError
from radixd.server.config.text import config_text
from tests.fake_cuda.control import FakeGpus
from tests.fake_cuda.plugin import MakeFakeGpus

GIB = 2**30


def pool(**flags: object) -> PoolConfig:
    return read_config(None, {}, {"geometry": "glm-5.3", "device": "cuda", **flags}).pools[0]


def mistakes(**flags: object) -> str:
    with pytest.raises(ConfigError) as raised:
        pool(**flags)
    return "\n".join(raised.value.errors)


@pytest.fixture
def gpus(make_fake_gpus: MakeFakeGpus) -> FakeGpus:
    return make_fake_gpus(3, memory=16 * GIB)


def test_gpus_are_as_many_devices(gpus: FakeGpus) -> None:
    found = pool(gpus=gpus.uuids[:2], tokens=640)
    assert (found.devices, found.gpus) == (2, tuple(gpus.uuids[:2]))
    assert (pool(tokens=640).devices, pool(tokens=640).gpus) == (1, ())


def test_a_share_is_of_what_is_free_beside_the_scratch_on_the_fullest_gpu(gpus: FakeGpus) -> None:
    found = pool(gpus=gpus.uuids[1:], gpu_memory_fraction=0.5, scratch_bytes="1GiB")
    assert found.layout.num_pages == (15 * GIB // 2) // 3_452_160 - 1
    scratch = scratch_bytes(BATCHED_TOKENS, CONTEXT, logits_budget(16 * GIB, 0.9))
    assert pool(gpu_memory_fraction=0.9).layout.num_pages == int((16 * GIB - scratch) * 0.9) // 3_452_160 - 1


def test_a_share_must_hold_the_longest_context(gpus: FakeGpus) -> None:
    assert "are missing" in pool(gpu_memory_fraction=0.9, max_context=1_048_576).unsized
    assert pool(gpu_memory_fraction=0.9, max_context=64).unsized == ""


def test_mistakes_about_gpus_name_the_way_out(gpus: FakeGpus) -> None:
    assert "expected UUIDs" in mistakes(gpus=["0"], tokens=640)
    assert "name each GPU once" in mistakes(gpus=["GPU-1", "GPU-1"], tokens=640)
    assert "3 for 2 gpus" in mistakes(gpus=["GPU-1", "GPU-2"], devices=3, tokens=640)
    assert 'set device = "cuda"' in mistakes(gpus=["GPU-1"], device="cpu", tokens=640)
    assert "above 0 and at most 1" in mistakes(gpu_memory_fraction=1.2)
    assert "is on no GPU; give bytes" in mistakes(gpu_memory_fraction=0.9, device="cpu")
    assert "give one of tokens" in mistakes(gpu_memory_fraction=0.9, gpus=gpus.uuids, tokens=640, bytes="1GiB")
    assert "only gpu_memory_fraction leaves it free" in mistakes(scratch_bytes="1GiB", tokens=640)


def test_a_share_that_the_machine_does_not_give_now_is_no_mistake(gpus: FakeGpus, tmp_path: Path) -> None:
    assert "leaves nothing of the" in pool(gpu_memory_fraction=0.9, scratch_bytes="64GiB").unsized
    gpus.fail("cudaMemGetInfo", "cudaErrorUnknown")
    assert "cudaMemGetInfo" in pool(gpu_memory_fraction=0.9).unsized
    missing = pool(gpus=["GPU-nowhere"], gpu_memory_fraction=0.9, host_tokens=640, free_target_pages=9)
    assert "GPU-nowhere" in missing.unsized
    assert gpus.uuids[0] in missing.unsized


def test_a_share_says_whose_gpu_is_in_use_and_logs_nothing_while_there_is_no_log(
    gpus: FakeGpus, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cudart.cudaSetDevice(1)
    _, taken = cudart.cudaMalloc(2 * GIB)
    share = {"gpu_memory_fraction": 0.5, "scratch_bytes": "1GiB"}
    told = (f"GPU {gpus.uuids[1]}: the pool's share is of the {14 * GIB} bytes free of {16 * GIB}",)
    assert pool(gpus=gpus.uuids, **share).crowded == told
    assert pool(gpus=gpus.uuids[2:], **share).crowded == ()
    file = tmp_path / "radixd.toml"
    file.write_text(f'[[pools]]\ndevice = "cuda"\ngpus = ["{gpus.uuids[1]}"]\ngpu_memory_fraction = 0.9\n')
    assert f"\n# {told[0]}\n" in config_text(read_config(file))
    assert caplog.records == []
    cudart.cudaFree(taken)


def test_a_share_can_be_checked_without_gpus(tmp_path: Path) -> None:
    file = tmp_path / "radixd.toml"
    file.write_text(
        'state_dir = "/tmp/state"\n[[pools]]\ndevice = "cuda"\ngpu_memory_fraction = 0.9\nhost_tokens = 6400\n'
    )
    text = config_text(read_config(file))
    assert "# cannot be served here: gpu_memory_fraction: no GPU can be used" in text
    assert "and page 0" not in text
