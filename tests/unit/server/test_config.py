"""What a configuration file means, and how its mistakes are told."""

import json
from pathlib import Path

import pytest

from radixd.server.cache.config import CacheConfig, WritePolicy
from radixd.server.cache.speculative import Speculative
from radixd.server.config import Address, Config, HostTierConfig
from radixd.server.config.file import read_config
from radixd.server.config.table import ConfigError
from radixd.server.config.text import config_text

EXAMPLE = Path(__file__).parents[3] / "deploy" / "radixd.example.toml"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "radixd.toml"
    path.write_text(text)
    return path


def errors_of(path: Path) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as raised:
        read_config(path)
    return raised.value.errors


def test_nothing_means_a_working_cpu_pool() -> None:
    config = read_config()
    (pool,) = config.pools
    assert (pool.name, pool.device_kind, pool.layout.geometry.name) == ("default", "cpu", "glm-5.3")
    assert pool.layout.nbytes <= 2**30 < pool.layout.nbytes + pool.layout.page_stride
    assert pool.layout.num_pages == 2**30 // 3_452_160 - 1  # page 0 is paid for, and not usable


def test_how_long_an_import_must_be_reaches_the_pool(tmp_path: Path) -> None:
    path = written(tmp_path, '[[pools]]\ngeometry = "tiny"\ntokens = 640\nimport_min_pages = 9')
    config = read_config(path)
    assert config.pools[0].import_min_pages == 9
    assert "import_min_pages = 9" in config_text(config)
    assert read_config().pools[0].import_min_pages == CacheConfig(1).import_min_pages
    path = written(tmp_path, '[[pools]]\ngeometry = "tiny"\ntokens = 640\nimport_min_pages = 0')
    assert "import_min_pages" in errors_of(path)[0]
    with pytest.raises(ValueError, match="import_min_pages"):
        CacheConfig(1, import_min_pages=0)


def test_a_host_tier_is_sized_in_tokens_or_bytes_and_keeps_some_device_pages_free(tmp_path: Path) -> None:
    flags = {"geometry": "tiny", "tokens": 6400, "host_tokens": 6500, "write_policy": "write_through"}
    (pool,) = read_config(None, {"state_dir": str(tmp_path)}, flags).pools
    assert pool.host == HostTierConfig(
        101, WritePolicy.WRITE_THROUGH, free_target_pages=3, state_dir=tmp_path / "default"
    )
    page = pool.layout.geometry.bytes_per_page
    (pool,) = read_config(None, {}, {"geometry": "tiny", "tokens": 640, "host_bytes": 6 * page}).pools
    assert (pool.host.pages, pool.host.free_target_pages, pool.host.state_dir) == (5, 1, None)
    (pool,) = read_config(None, {}, {"geometry": "tiny", "tokens": 640}).pools
    assert pool.host == HostTierConfig()


def test_mistakes_about_the_host_tier_name_the_way_out(tmp_path: Path) -> None:
    text = """
        state_dir = "/tmp/radixd-state"
        [[pools]]
        geometry = "tiny"
        device = "meta"
        tokens = 640
        host_tokens = 1
        host_bytes = 1
        write_policy = "write_back_later"
        free_target_pages = 11
    """
    assert errors_of(written(tmp_path, text)) == (
        "state_dir: no pool has a host tier to keep; give host_tokens or host_bytes",
        "pools[0].write_policy: 'write_back_later' is none of write_back, write_through, write_through_selective",
        "pools[0].free_target_pages: 11 is outside [0, 10]",
        "pools[0].host_tokens: give either host_tokens or host_bytes, not both",
        "pools[0].host_tokens: 1 tokens are less than one page of 64",
    )
    text = 'state_dir = "/tmp/x"\n[[pools]]\ngeometry = "tiny"\ndevice = "meta"\ntokens = 640\nhost_tokens = 640'
    (error,) = errors_of(written(tmp_path, text))
    assert error == "state_dir: pool default has no memory (device meta), so nothing of it can be kept"
    (error,) = errors_of(written(tmp_path, '[[pools]]\nname = ".."\ngeometry = "tiny"\ntokens = 640'))
    assert error.startswith("pools[0].name: '..' may hold letters")


def test_the_example_states_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    assert read_config(EXAMPLE) == read_config()


def test_many_pools(tmp_path: Path) -> None:
    config = read_config(
        written(
            tmp_path,
            """
            socket = "/tmp/r.sock"
            tcp = "localhost:50051"
            metrics = "off"
            drain_seconds = 2.5
            [limits]
            leases = 7
            [[pools]]
            name = "a"
            geometry = "tiny"
            tokens = 700
            [[pools]]
            name = "b"
            geometry = "llama-8b"
            layout = "layer_first"
            device = "meta"
            devices = 8
            bytes = "2 GiB"
            policy = "lru"
            speculative = "bigram"
            """,
        )
    )
    assert config.tcp == Address("127.0.0.1", 50051)
    assert config.metrics is None
    assert config.drain_seconds == 2.5
    assert config.limits.leases == 7
    assert config.attach_socket == Path("/tmp/r.sock.attach")
    a, b = config.pools
    assert a.usable_tokens == 640  # whole pages
    assert (b.layout.kind, b.devices, b.policy, b.speculative) == ("layer_first", 8, "lru", Speculative.BIGRAM)


def test_flags_replace_the_file_and_one_size_the_other(tmp_path: Path) -> None:
    path = written(tmp_path, 'socket = "/a"\n[[pools]]\ngeometry = "tiny"\ntokens = 640\npolicy = "lru"')
    config = read_config(path, {"socket": "/b"}, {"bytes": "1MiB"})
    assert config.socket == Path("/b")
    assert config.pools[0].layout.num_pages == 2**20 // 5376 - 1
    assert config.pools[0].policy == "lru"


def test_pool_flags_need_one_pool(tmp_path: Path) -> None:
    path = written(tmp_path, '[[pools]]\nname = "a"\ntokens = 64\n[[pools]]\nname = "b"\ntokens = 64')
    with pytest.raises(ConfigError, match="the file has several"):
        read_config(path, {}, {"policy": "lru"})
    with pytest.raises(ConfigError, match=r"pools\[0\]: expected a table"):
        read_config(written(tmp_path, "pools = [1]"), {}, {"policy": "lru"})


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    errors = errors_of(
        written(
            tmp_path,
            """
            sokcet = "/x"
            tcp = "0.0.0.0:1"
            [liveness]
            ttl_seconds = 3
            [limits]
            leasses = 1
            [[pools]]
            tokens = 64
            devcie = "cpu"
            [[pools]]
            policy = "best"
            bytes = "many"
            """,
        )
    )
    for expected in (
        "sokcet: unknown; did you mean 'socket'?",
        "tcp: 0.0.0.0 is not a loopback address",
        "liveness.ttl_seconds: 3.0 must be at least twice",
        "limits.leasses: unknown; did you mean 'leases'?",
        "pools[0].devcie: unknown; did you mean 'device'?",
        "pools[1].policy: 'best' is none of priority, lru",
        "pools[1].bytes: expected a number of bytes",
    ):
        assert [line for line in errors if line.startswith(expected)], expected
    assert all("\n" not in line for line in errors)


def test_a_bad_geometry_hides_no_other_mistake(tmp_path: Path) -> None:
    text = """
        [[pools]]
        geometry = "glm5"
        [[pools]]
        tokens = 64
        max_context = 65
    """
    twice, nearest, size, too_long = sorted(errors_of(written(tmp_path, text)))
    assert twice.startswith("pools: 2 pools are called 'default'")
    assert nearest.startswith("pools[0].geometry: ")
    assert nearest.endswith("did you mean 'glm-5.3'?")
    assert size.startswith("pools[0].tokens: give one of tokens")
    assert too_long.startswith("pools[1].max_context: 65 tokens do not fit")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("tokens = 64\nbytes = 1", "give one of tokens"),
        ("tokens = 10", "tokens: 10 tokens are less than one page of 64"),
        ("bytes = 5376", "bytes: 5376 bytes hold no usable page"),
        ('tokens = 64\nname = "a b"', "name: 'a b' may hold"),
        (
            "tokens = 640\nmax_context = 705",
            "max_context: 705 tokens do not fit the pool's 640: 65 tokens (2 pages, 10,752 bytes a device) are missing"
            "; set tokens = 768 or more",
        ),
        ("tokens = true", "expected an integer"),
        (f'bytes = "{"9" * 400}GiB"', "expected a number of bytes"),
        ('bytes = "0.1 B"', "expected a number of bytes"),
    ],
)
def test_a_pool_that_cannot_be(tmp_path: Path, lines: str, expected: str) -> None:
    (error,) = errors_of(written(tmp_path, f'[[pools]]\ngeometry = "tiny"\n{lines}'))
    assert expected in error


def test_an_unknown_geometry(tmp_path: Path) -> None:
    (error,) = errors_of(written(tmp_path, '[[pools]]\ngeometry = "no-such"\ntokens = 64'))
    assert "neither a preset (glm-5.3" in error


def test_a_context_that_fits_exactly_is_accepted(tmp_path: Path) -> None:
    path = written(tmp_path, '[[pools]]\ngeometry = "tiny"\ntokens = 640\nmax_context = 640')
    assert read_config(path).pools[0].max_context == 640


def test_a_message_must_hold_a_lease(tmp_path: Path) -> None:
    (error,) = errors_of(written(tmp_path, "[limits]\ntokens = 20_000_000"))
    assert error.startswith("limits.tokens: 20000000 tokens are 80000000 bytes")


def test_a_socket_path_that_the_kernel_would_cut_is_refused(tmp_path: Path) -> None:
    (error,) = errors_of(written(tmp_path, f'socket = "/tmp/{"x" * 120}"'))
    assert error.startswith("socket: ")
    assert "at most 107" in error


@pytest.mark.parametrize("path", ["~nobody-of-that-name/r.sock", r"/tmp/a\u0000b"])
def test_a_socket_path_that_nothing_can_have(tmp_path: Path, path: str) -> None:
    (error,) = errors_of(written(tmp_path, f'socket = "{path}"'))
    assert error.startswith("socket: ")


def test_a_file_nested_too_deep(tmp_path: Path) -> None:
    assert len(errors_of(written(tmp_path, f"a = {'[' * 5_000}"))) == 1


def test_a_file_that_is_no_toml_or_not_there(tmp_path: Path) -> None:
    assert len(errors_of(written(tmp_path, "a = = 1"))) == 1
    assert "No such file" in errors_of(tmp_path / "absent.toml")[0]


def test_geometry_paths_start_at_the_file(tmp_path: Path) -> None:
    geometry = read_config().pools[0].layout.geometry
    (tmp_path / "mine.json").write_text(json.dumps(geometry.to_dict()))
    config = read_config(written(tmp_path, '[[pools]]\ngeometry = "mine.json"\ntokens = 64'))
    assert config.pools[0].layout.geometry == geometry


def test_what_is_printed_can_be_read_back(tmp_path: Path) -> None:
    config: Config = read_config(None, {"socket": "/tmp/s", "tcp": "[::1]:7"}, {"geometry": "tiny", "tokens": 640})
    assert read_config(written(tmp_path, config_text(config))) == config
