"""Reading a Config from TOML and flags: every mistake is found in one pass and told in one line each."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import TypeVar, get_args

from radixd.gpu_pool import fields
from radixd.gpu_pool.paths import MAX_SOCKET_PATH, attach_socket, default_socket
from radixd.server.config import (
    DEFAULT_METRICS,
    MESSAGE_BYTES_CAP,
    Address,
    Config,
    PoolConfig,
    TracingKind,
    values,
)
from radixd.server.config.pool import DEFAULT_NAME, SIZES, pool_config
from radixd.server.config.table import ConfigError, Table
from radixd.server.log_lines import LogFormat
from radixd.server.sessions.limits import Limits
from radixd.server.sessions.liveness import Liveness

DEFAULT_POOL: Mapping[str, object] = {"geometry": "glm-5.3", "bytes": "1GiB"}
MAX_POOLS = 64
MESSAGE_OVERHEAD = 64 * 2**10
"""Bytes that a Batch may need beside one lease's tokens."""

Section = TypeVar("Section", Limits, Liveness)


def read_config(
    path: Path | None = None,
    overrides: Mapping[str, object] | None = None,
    pool_overrides: Mapping[str, object] | None = None,
) -> Config:
    """The configuration of a TOML file, or the defaults, with flags laid over it.

    Args:
        path: the file; None for none.
        overrides: top-level keys that replace the file's.
        pool_overrides: keys that replace those of the only pool.

    Raises ConfigError, which holds all mistakes.
    """
    data = {**(_load(path) if path else {}), **(overrides or {})}
    if pool_overrides:
        data["pools"] = [_overridden(data.get("pools", [DEFAULT_POOL]), pool_overrides)]
    root = Table(data, "")
    state_dir = root.get("state_dir", values.optional_path, None)
    metrics: Address | None = DEFAULT_METRICS
    config = Config(
        pools=_pools(root, path.parent if path else Path(), state_dir),
        socket=root.get("socket", values.path, default_socket()),
        tcp=root.get("tcp", values.address, None),
        metrics=root.get("metrics", values.address, metrics),
        log_format=root.choice("log_format", get_args(LogFormat), Config.log_format),
        tracing=root.choice("tracing", get_args(TracingKind), Config.tracing),
        drain_seconds=root.get("drain_seconds", _any_seconds, Config.drain_seconds),
        memory_wait_seconds=root.get("memory_wait_seconds", _any_seconds, Config.memory_wait_seconds),
        state_dir=state_dir,
        limits=_section(root, "limits", Limits()),
        liveness=_section(root, "liveness", Liveness()),
    )
    _check_together(root, config)
    root.finish()
    return config


def _load(path: Path) -> Mapping[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: {error}") from error


def _overridden(pools: object, flags: Mapping[str, object]) -> Mapping[str, object]:
    if not isinstance(pools, list) or len(pools) != 1:
        raise ConfigError("flags describe one pool, and the file has several: change the file")
    if not isinstance(pools[0], Mapping):
        raise ConfigError("pools[0]: expected a table ([[pools]])")
    pool = dict(pools[0])
    for sizes in (SIZES, ("host_tokens", "host_bytes")):
        if flags.keys() & sizes:  # one size replaces the other
            for size in sizes:
                pool.pop(size, None)
    return {**pool, **flags}


def _pools(root: Table, directory: Path, state_dir: Path | None) -> tuple[PoolConfig, ...]:
    default: Sequence[object] = [DEFAULT_POOL]
    items = root.get("pools", lambda d, k, w: fields.sequence(d, k, w, MAX_POOLS), default)
    if not items:
        root.error("pools: at least one pool is needed")
    pools = []
    for i, item in enumerate(items):
        if isinstance(item, Mapping):
            table = root.child(item, f"pools[{i}].")
            pool = pool_config(table, directory, state_dir)
            if pool is not None:
                pools.append(pool)
        else:
            root.error(f"pools[{i}]: expected a table ([[pools]])")
    names = [item.get("name", DEFAULT_NAME) for item in items if isinstance(item, Mapping)]
    names = [name for name in names if isinstance(name, str)]
    for name in sorted({name for name in names if names.count(name) > 1}):
        root.error(f"pools: {names.count(name)} pools are called {name!r}; give each its own name")
    return tuple(pools)


def _section(root: Table, name: str, default: Section) -> Section:
    """A table of positive numbers with the fields, types and defaults of a dataclass."""
    table = root.child(root.get(name, lambda d, k, w: fields.mapping(d[k], k), {}), f"{name}.")
    given = {}
    for item in dataclass_fields(default):
        value = getattr(default, item.name)
        if isinstance(value, int):
            given[item.name] = table.integer(item.name, value, low=1, high=2**40)
        else:
            given[item.name] = table.get(item.name, values.seconds, value)
    return type(default)(**given)


def _check_together(root: Table, config: Config) -> None:
    """What no field can say alone."""
    limits, liveness = config.limits, config.liveness
    if limits.message_bytes > MESSAGE_BYTES_CAP:
        root.error(f"limits.message_bytes: {limits.message_bytes} is above the cap of {MESSAGE_BYTES_CAP}")
    if 4 * limits.tokens + MESSAGE_OVERHEAD > limits.message_bytes:
        root.error(
            f"limits.tokens: {limits.tokens} tokens are {4 * limits.tokens} bytes and do not fit a message of "
            f"{limits.message_bytes}: raise limits.message_bytes or lower limits.tokens"
        )
    if liveness.ttl_seconds < 2 * liveness.keepalive_seconds:
        root.error(
            f"liveness.ttl_seconds: {liveness.ttl_seconds} must be at least twice keepalive_seconds "
            f"({liveness.keepalive_seconds}), or one late keepalive ends a session"
        )
    if config.state_dir is not None:
        _check_state_dir(root, config)
    length = len(str(attach_socket(config.socket)).encode())
    if length > MAX_SOCKET_PATH:
        root.error(
            f"socket: {attach_socket(config.socket)} has {length} bytes, a socket's path at most {MAX_SOCKET_PATH}"
        )


def _check_state_dir(root: Table, config: Config) -> None:
    """A state directory holds host tiers, so there must be one, and with memory."""
    tiers = [pool for pool in config.pools if pool.host.pages]
    if not tiers and not any(pool.unsized for pool in config.pools) and config.pools:
        root.error("state_dir: no pool has a host tier to keep; give host_tokens or host_bytes")
    for pool in tiers:
        if pool.device_kind == "meta":
            root.error(f"state_dir: pool {pool.name} has no memory (device meta), so nothing of it can be kept")


def _any_seconds(data: Mapping[str, object], key: str, where: str) -> float:
    return values.seconds(data, key, where, low=0)
