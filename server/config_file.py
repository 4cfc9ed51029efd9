"""Reading a Config from TOML and flags: every mistake is found in one pass and told in one line each."""

import ipaddress
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields as dataclass_fields
from decimal import Decimal
from pathlib import Path
from typing import TypeVar, get_args

from radixd.gpu_pool import fields
from radixd.gpu_pool.fields import FieldError
from radixd.gpu_pool.handle import DeviceKind
from radixd.gpu_pool.layout import Layout, LayoutKind, pages_for_bytes
from radixd.gpu_pool.paths import MAX_SOCKET_PATH, attach_socket, default_socket
from radixd.gpu_pool.presets import PRESETS, load_geometry
from radixd.server.cache.policy import POLICIES
from radixd.server.cache.speculative import Speculative
from radixd.server.config import (
    DEFAULT_METRICS,
    MESSAGE_BYTES_CAP,
    Address,
    Config,
    PoolConfig,
)
from radixd.server.config_table import ConfigError, Table
from radixd.server.sessions.limits import Limits
from radixd.server.sessions.liveness import Liveness

DEFAULT_POOL: Mapping[str, object] = {"geometry": "glm-5.3", "bytes": "1GiB"}
MAX_DEVICES = 64
MAX_POOLS = 64
MESSAGE_OVERHEAD = 64 * 2**10
"""Bytes that a Batch may need beside one lease's tokens."""

Section = TypeVar("Section", Limits, Liveness)
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    f"{prefix}iB": 2 ** (10 * power) for power, prefix in enumerate("KMGT", start=1)
}


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
    metrics: Address | None = DEFAULT_METRICS
    config = Config(
        pools=_pools(root, path.parent if path else Path()),
        socket=root.get("socket", _socket, default_socket()),
        tcp=root.get("tcp", _address, None),
        metrics=root.get("metrics", _address, metrics),
        drain_seconds=root.get("drain_seconds", lambda d, k, w: _seconds(d, k, w, low=0), Config.drain_seconds),
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
    if {"tokens", "bytes"} & flags.keys():  # one size replaces the other
        pool.pop("tokens", None)
        pool.pop("bytes", None)
    return {**pool, **flags}


def _pools(root: Table, directory: Path) -> tuple[PoolConfig, ...]:
    default: Sequence[object] = [DEFAULT_POOL]
    items = root.get("pools", lambda d, k, w: fields.sequence(d, k, w, MAX_POOLS), default)
    if not items:
        root.error("pools: at least one pool is needed")
    pools = []
    for i, item in enumerate(items):
        if isinstance(item, Mapping):
            table = root.child(item, f"pools[{i}].")
            pool = _pool(table, directory)
            if pool is not None:
                pools.append(pool)
        else:
            root.error(f"pools[{i}]: expected a table ([[pools]])")
    names = [pool.name for pool in pools]
    for name in sorted({name for name in names if names.count(name) > 1}):
        root.error(f"pools: {names.count(name)} pools are called {name!r}; give each its own name")
    return tuple(pools)


def _pool(table: Table, directory: Path) -> PoolConfig | None:
    """One pool, or None where its memory cannot be laid out; the table holds the errors."""
    name = table.get("name", _name, "default")
    layout = _layout(table, directory)
    device_kind: DeviceKind = table.choice("device", get_args(DeviceKind), "cpu")
    devices = table.integer("devices", 1, low=1, high=MAX_DEVICES)
    policy = table.choice("policy", tuple(POLICIES), "priority")
    speculative = table.choice("speculative", tuple(Speculative), Speculative.NONE)
    max_context = table.integer("max_context", 0, low=0, high=2**31)
    if layout is None:
        return None
    pool = PoolConfig(name, layout, device_kind, devices, policy, Speculative(speculative), max_context)
    if pool.usable_tokens < max_context:
        page_size = layout.geometry.page_size
        needed = -(-max_context // page_size)
        short = needed - layout.num_pages
        table.error(
            f"{table.where}max_context: {max_context} tokens do not fit the pool's {pool.usable_tokens}: {short} pages "
            f"({short * layout.page_stride} bytes a device) are missing; set tokens = {needed * page_size} or more"
        )
    return pool


def _layout(table: Table, directory: Path) -> Layout | None:
    named = table.get("geometry", fields.text, "glm-5.3")
    kind: LayoutKind = table.choice("layout", get_args(LayoutKind), "page_first")
    multiple = table.integer("stride_multiple", 1, low=1, high=2**20)
    tokens = table.integer("tokens", 0, low=1, high=2**31)
    nbytes = table.get("bytes", _bytes, 0)
    if ("tokens" in table) == ("bytes" in table):
        table.error(f"{table.where}tokens: give either tokens (usable) or bytes (of one device, page 0 included)")
        return None
    if not tokens and not nbytes:
        return None
    try:
        geometry = load_geometry(named if named in PRESETS else str(directory / named))
    except ValueError as error:
        table.error(f"{table.where}geometry: {error}")
        return None
    try:
        pages = tokens // geometry.page_size if tokens else pages_for_bytes(geometry, nbytes, multiple)
        if not pages:
            raise FieldError(f"{tokens} tokens are less than one page of {geometry.page_size}")
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
            values[item.name] = table.get(item.name, _seconds, value)
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
    length = len(str(attach_socket(config.socket)).encode())
    if length > MAX_SOCKET_PATH:
        root.error(
            f"socket: {attach_socket(config.socket)} has {length} bytes, a socket's path at most {MAX_SOCKET_PATH}"
        )


def _name(data: Mapping[str, object], key: str, where: str) -> str:
    name = fields.text(data, key, where, limit=64)
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise FieldError(f"{where}{key}: {name!r} may hold letters, digits, '.', '_' and '-' alone")
    return name


def _socket(data: Mapping[str, object], key: str, where: str) -> Path:
    text = fields.text(data, key, where)
    try:
        path = Path(text).expanduser().absolute()
    except RuntimeError as error:  # ~ of nobody
        raise FieldError(f"{where}{key}: {text!r}: {error}") from error
    if "\0" in text:
        raise FieldError(f"{where}{key}: {text!r} holds a null character, which no path may")
    return path


def _seconds(data: Mapping[str, object], key: str, where: str, low: float = 0.05) -> float:
    value = data[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= 86_400:
        raise FieldError(f"{where}{key}: expected seconds within [{low}, 86400], got {value!r}")
    return float(value)


def _bytes(data: Mapping[str, object], key: str, where: str) -> int:
    value, size = data[key], Decimal(0)
    if isinstance(value, str) and (found := re.fullmatch(r"(\d+(?:\.\d+)?) ?([A-Za-z]*)", value.strip())):
        number, unit = found.groups()
        size = Decimal(number) * _UNITS.get(unit, 0)
    elif isinstance(value, int) and not isinstance(value, bool):
        size = Decimal(value)
    if 1 <= size < 2**63:
        return int(size)
    shown = repr(value)[:64]
    raise FieldError(f"{where}{key}: expected a number of bytes or text such as '64GiB' or '64 GB', got {shown}")


def _address(data: Mapping[str, object], key: str, where: str) -> Address | None:
    """`host:port` on loopback; "off" for none."""
    text = fields.text(data, key, where)
    if text == "off":
        return None
    host, _, port = text.rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.strip("[]")
    try:
        loopback = ipaddress.ip_address(host).is_loopback
        address = Address(host, int(port))
    except ValueError:
        raise FieldError(f"{where}{key}: expected ADDRESS:PORT or 'off', got {text!r}") from None
    if not loopback:
        raise FieldError(
            f"{where}{key}: {host} is not a loopback address, and nothing here is encrypted: "
            "use 127.0.0.1 or [::1] and put a TLS proxy in front"
        )
    if not 0 <= address.port < 2**16:
        raise FieldError(f"{where}{key}: port {address.port} is outside [0, 65535]")
    return address
