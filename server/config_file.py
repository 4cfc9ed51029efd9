"""Reading a Config from TOML and flags: every mistake is found in one pass and told in one line each."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import TypeVar, get_args

from radixd.gpu_pool import fields
from radixd.gpu_pool.budget.capacity import pages_to_hold, shortfall
from radixd.gpu_pool.handle import DeviceKind
from radixd.gpu_pool.layout import Layout, LayoutKind, pages_for_bytes, pages_for_tokens
from radixd.gpu_pool.paths import MAX_SOCKET_PATH, attach_socket, default_socket
from radixd.gpu_pool.presets import PRESETS, load_geometry
from radixd.server import config_values
from radixd.server.cache.policy import POLICIES
from radixd.server.cache.speculative import Speculative
from radixd.server.config import (
    DEFAULT_METRICS,
    MESSAGE_BYTES_CAP,
    Address,
    Config,
    PoolConfig,
)
from radixd.server.config_host import host_tier
from radixd.server.config_table import ConfigError, Table
from radixd.server.sessions.limits import Limits
from radixd.server.sessions.liveness import Liveness

DEFAULT_POOL: Mapping[str, object] = {"geometry": "glm-5.3", "bytes": "1GiB"}
DEFAULT_NAME = "default"
MAX_DEVICES = 64
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
    state_dir = root.get("state_dir", config_values.optional_path, None)
    metrics: Address | None = DEFAULT_METRICS
    config = Config(
        pools=_pools(root, path.parent if path else Path(), state_dir),
        socket=root.get("socket", config_values.path, default_socket()),
        tcp=root.get("tcp", config_values.address, None),
        metrics=root.get("metrics", config_values.address, metrics),
        drain_seconds=root.get("drain_seconds", _any_seconds, Config.drain_seconds),
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
    pool = dict(fields.mapping(pools[0], "pools[0]"))
    for sizes in (("tokens", "bytes"), ("host_tokens", "host_bytes")):
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
            pool = _pool(table, directory, state_dir)
            if pool is not None:
                pools.append(pool)
        else:
            root.error(f"pools[{i}]: expected a table ([[pools]])")
    names = [item.get("name", DEFAULT_NAME) for item in items if isinstance(item, Mapping)]
    names = [name for name in names if isinstance(name, str)]
    for name in sorted({name for name in names if names.count(name) > 1}):
        root.error(f"pools: {names.count(name)} pools are called {name!r}; give each its own name")
    return tuple(pools)


def _pool(table: Table, directory: Path, state_dir: Path | None) -> PoolConfig | None:
    """One pool, or None where its memory cannot be laid out; the table holds the errors."""
    name = table.get("name", config_values.pool_name, DEFAULT_NAME)
    layout = _layout(table, directory)
    device_kind: DeviceKind = table.choice("device", get_args(DeviceKind), "cpu")
    devices = table.integer("devices", 1, low=1, high=MAX_DEVICES)
    policy = table.choice("policy", tuple(POLICIES), "priority")
    speculative = table.choice("speculative", tuple(Speculative), Speculative.NONE)
    max_context = table.integer("max_context", 0, low=0, high=2**31)
    deadline = table.get("copy_deadline_seconds", config_values.seconds, 30.0)
    host = host_tier(table, layout, state_dir / name if state_dir else None)
    if layout is None:
        return None
    pool = PoolConfig(name, layout, device_kind, devices, policy, Speculative(speculative), max_context, deadline, host)
    page_size = layout.geometry.page_size
    if missing := shortfall(max_context, layout.num_pages, page_size, layout.page_stride):
        table.error(
            f"{table.where}max_context: {max_context} tokens do not fit the pool's {pool.usable_tokens}: {missing}; "
            f"set tokens = {pages_to_hold(max_context, page_size) * page_size} or more"
        )
    return pool


def _layout(table: Table, directory: Path) -> Layout | None:
    named = table.get("geometry", fields.text, "glm-5.3")
    kind: LayoutKind = table.choice("layout", get_args(LayoutKind), "page_first")
    multiple = table.integer("stride_multiple", 1, low=1, high=2**20)
    tokens = table.integer("tokens", 0, low=1, high=2**31)
    nbytes = table.get("bytes", config_values.size, 0)
    try:
        geometry = load_geometry(named if named in PRESETS else str(directory / named))
    except ValueError as error:
        table.error(f"{table.where}geometry: {error}")
        geometry = None
    if ("tokens" in table) == ("bytes" in table):
        table.error(f"{table.where}tokens: give either tokens (usable) or bytes (of one device, page 0 included)")
        return None
    if geometry is None or (not tokens and not nbytes):
        return None
    try:
        pages = pages_for_tokens(geometry, tokens) if tokens else pages_for_bytes(geometry, nbytes, multiple)
        return Layout(geometry, kind, pages, multiple)
    except ValueError as error:
        table.error(f"{table.where}{'tokens' if tokens else 'bytes'}: {error}")
        return None


def _section(root: Table, name: str, default: Section) -> Section:
    """A table of positive numbers with the fields, types and defaults of a dataclass."""
    table = root.child(root.get(name, lambda d, k, w: fields.mapping(d[k], k), {}), f"{name}.")
    values = {}
    for item in dataclass_fields(default):
        value = getattr(default, item.name)
        if isinstance(value, int):
            values[item.name] = table.integer(item.name, value, low=1, high=2**40)
        else:
            values[item.name] = table.get(item.name, config_values.seconds, value)
    return type(default)(**values)


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
    if not tiers and config.pools:
        root.error("state_dir: no pool has a host tier to keep; give host_tokens or host_bytes")
    for pool in tiers:
        if pool.device_kind == "meta":
            root.error(f"state_dir: pool {pool.name} has no memory (device meta), so nothing of it can be kept")


def _any_seconds(data: Mapping[str, object], key: str, where: str) -> float:
    return config_values.seconds(data, key, where, low=0)
