"""Which pools a run is on, and how replay's own daemon is told of them."""

import json
import sys
from pathlib import Path

import pytest

from radixd.gpu_pool.presets import load_geometry
from radixd.server.cli.parser import build_parser
from radixd.server.config.file import read_config
from radixd.server.replay.faults import Faults
from radixd.server.replay.options import Options
from radixd.server.replay.own_daemon import DaemonFailed, config_text
from radixd.server.replay.run import scheduler_jobs
from tests.fake_cuda.control import FakeGpus


def options(*flags: str) -> Options:
    return Options.read(build_parser().parse_args(["replay", *flags]))


@pytest.mark.parametrize(
    ("flags", "names", "schedulers"),
    [
        ((), ("dp0",), 4),
        (("--pools", "2"), ("dp0", "dp1"), 4),
        (("--pools", "6"), ("dp0", "dp1", "dp2", "dp3", "dp4", "dp5"), 6),
        (("--target", "x.sock"), ("",), 4),
        (("--target", "x.sock", "--pool", "a,b"), ("a", "b"), 4),
        (("--target", "x.sock", "--pool", "a", "--schedulers", "1"), ("a",), 1),
    ],
)
def test_every_pool_has_a_scheduler(flags: tuple[str, ...], names: tuple[str, ...], schedulers: int) -> None:
    assert (options(*flags).pool_names, options(*flags).schedulers) == (names, schedulers)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--pools", "3", "--schedulers", "2"), "--schedulers 2: each of the 3 pools"),
        (("--target", "x.sock", "--pools", "2"), "--pools: the daemon at --target"),
        (("--import-from-peers",), "--import-from-peers: a single pool has no peers"),
        (("--pool", "a"), "--pool a: for pools of the daemon at --target"),
        (("--target", "x.sock", "--pool", "a,a"), "--pool a,a: give the name of each pool once"),
        (("--target", "x.sock", "--pool", "a,"), "--pool a,: give the name of each pool once"),
    ],
)
def test_pools_that_cannot_be_are_refused(flags: tuple[str, ...], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        options(*flags)


def test_prompts_alone_run_in_strict_order_where_each_pool_has_one_scheduler() -> None:
    assert options("--pools", "2", "--no-decode", "--schedulers", "2").one_by_one
    assert not options("--pools", "2", "--no-decode", "--schedulers", "3").one_by_one


def test_schedulers_take_turns_at_the_pools_and_both_ways_of_deduplication_meet_on_each() -> None:
    jobs = scheduler_jobs(options("--pools", "2", "--schedulers", "5"), Faults(), "x.sock", 23)
    assert [job.pool for job in jobs] == ["dp0", "dp1", "dp0", "dp1", "dp0"]
    assert {(job.pool, job.dedup) for job in jobs} == {
        (pool, how) for pool in ("dp0", "dp1") for how in ("keep", "patch")
    }
    assert sorted(index for job in jobs for index in job.indices) == list(range(23))


def test_the_configuration_means_what_the_flags_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A geometry's path starts where replay was called, wherever the configuration lies."""
    (tmp_path / 'my "model".json').write_text(json.dumps(load_geometry("tiny").to_dict()))
    monkeypatch.chdir(tmp_path)
    chosen = options(
        "--pools", "2", "--geometry", 'my "model".json', "--device", "cpu_async", "--pool-tokens", "6400",
        "--policy", "lru", "--host-pages", "50", "--write-policy", "write_through", "--restart-every", "9",
        "--layout", "layer_first",
    )  # fmt: skip
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    config_file = elsewhere / "radixd.toml"
    config_file.write_text(config_text(chosen.pool, chosen.pool_names, elsewhere, elsewhere / "r.sock"))
    config = read_config(config_file)
    assert (config.socket, config.metrics, config.state_dir) == (elsewhere / "r.sock", None, elsewhere / "state")
    assert [pool.name for pool in config.pools] == ["dp0", "dp1"]
    for pool in config.pools:
        assert (pool.device_kind, pool.policy, pool.usable_tokens) == ("cpu_async", "lru", 6400)
        assert (pool.layout.kind, pool.layout.geometry.bytes_per_token) == ("layer_first", 84)
        assert (pool.host.pages, pool.host.write_policy) == (50, "write_through")


def test_a_missing_gpu_or_binding_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = options("--geometry", "tiny", "--device", "cuda", "--pool-tokens", "6400")
    for name in [name for name in sys.modules if name.startswith("radixd.gpu_pool.cuda.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(DaemonFailed, match="install radixd with its extra"):
        config_text(chosen.pool, chosen.pool_names, tmp_path, tmp_path / "r.sock")


def test_pools_lie_on_the_gpus_in_turn(fake_gpus: FakeGpus, tmp_path: Path) -> None:
    chosen = options("--pools", "3", "--geometry", "tiny", "--device", "cuda", "--pool-tokens", "6400")
    file = tmp_path / "radixd.toml"
    file.write_text(config_text(chosen.pool, chosen.pool_names, tmp_path, tmp_path / "r.sock"))
    first, second = fake_gpus.uuids
    assert [pool.gpus for pool in read_config(file).pools] == [(first,), (second,), (first,)]
