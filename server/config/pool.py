"""Reading one pool from its table."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, get_args

from radixd.gpu_pool import fields
from radixd.gpu_pool.budget.capacity import pages_to_hold, shortfall
from radixd.gpu_pool.fields import FieldError
from radixd.gpu_pool.geometry import Geometry
from radixd.gpu_pool.handle import DeviceKind
from radixd.gpu_pool.layout import Layout, LayoutKind, pages_for_bytes, pages_for_tokens
from radixd.gpu_pool.presets import PRESETS, load_geometry
from radixd.server.cache.policy import POLICIES
from radixd.server.cache.speculative import Speculative
from radixd.server.config import PoolConfig, values
from radixd.server.config.gpu_share import NoShare, share_of
from radixd.server.config.host_tier import host_tier
from radixd.server.config.table import Table

DEFAULT_NAME = "default"
MAX_DEVICES = 64

SIZES = ("tokens", "bytes", "gpu_memory_fraction")
"""Ways to say how large a pool is; each excludes the others."""


def pool_config(table: Table, directory: Path, state_dir: Path | None) -> PoolConfig | None:
    """One pool, or None where its memory cannot be laid out; the table holds the errors."""
    name = table.get("name", values.pool_name, DEFAULT_NAME)
    device_kind: DeviceKind = table.choice("device", get_args(DeviceKind), "cpu")
    unnamed: tuple[str, ...] = ()
    gpus = table.get("gpus", _gpus, unnamed)
    devices = table.integer("devices", len(gpus) or 1, low=1, high=MAX_DEVICES)
    if gpus and device_kind != "cuda":
        table.error(f'{table.where}gpus: a pool of device {device_kind!r} is on none; set device = "cuda"')
    if gpus and devices != len(gpus):
        table.error(f"{table.where}devices: {devices} for {len(gpus)} gpus; leave it out, or name as many gpus")
    layout, unsized, crowded = _sized(table, directory, device_kind, gpus, devices)
    policy = table.choice("policy", tuple(POLICIES), "priority")
    speculative = table.choice("speculative", tuple(Speculative), Speculative.NONE)
    max_context = table.integer("max_context", 0, low=0, high=2**31)
    deadline = table.get("copy_deadline_seconds", values.seconds, 30.0)
    import_min = table.integer("import_min_pages", PoolConfig.import_min_pages, low=1, high=2**31)
    host = host_tier(table, None if unsized else layout, state_dir / name if state_dir else None)
    if layout is None:
        return None
    short = "" if unsized else _too_short(layout, max_context)
    if short and "gpu_memory_fraction" in table:
        unsized = short
    elif short:
        table.error(f"{table.where}{short}")
    return PoolConfig(
        name=name,
        layout=layout,
        device_kind=device_kind,
        devices=devices,
        gpus=gpus,
        policy=policy,
        speculative=Speculative(speculative),
        max_context=max_context,
        copy_deadline_seconds=deadline,
        host=host,
        import_min_pages=import_min,
        unsized=unsized,
        crowded=crowded,
    )


def _too_short(layout: Layout, max_context: int) -> str:
    """What a pool lacks for its longest request; "" where it holds one."""
    page_size = layout.geometry.page_size
    missing = shortfall(max_context, layout.num_pages, page_size, layout.page_stride)
    if missing is None:
        return ""
    return (
        f"max_context: {max_context} tokens do not fit the pool's {layout.num_pages * page_size}: {missing}; "
        f"set tokens = {pages_to_hold(max_context, page_size) * page_size} or more"
    )


class _Sized(NamedTuple):
    """A layout, or None where the table holds what is wrong; the rest as PoolConfig has it."""

    layout: Layout | None
    unsized: str = ""
    """Where it is not empty, the layout only stands in: it has one page."""
    crowded: tuple[str, ...] = ()


def _sized(table: Table, directory: Path, device_kind: DeviceKind, gpus: tuple[str, ...], devices: int) -> _Sized:
    kind: LayoutKind = table.choice("layout", get_args(LayoutKind), "page_first")
    multiple = table.integer("stride_multiple", 1, low=1, high=2**20)
    tokens = table.integer("tokens", 0, low=1, high=2**31)
    nbytes = table.get("bytes", values.size, 0)
    fraction = table.get("gpu_memory_fraction", _fraction, 0.0)
    scratch = table.get("scratch_bytes", values.size, 0)
    geometry = _geometry(table, directory)
    given = [size for size in SIZES if size in table]
    if len(given) != 1:
        table.error(
            f"{table.where}{given[-1] if given else 'tokens'}: give one of tokens (usable), bytes (of one device, "
            "page 0 included) and, on GPUs, gpu_memory_fraction (of what is free)"
        )
        return _Sized(None)
    if "scratch_bytes" in table and "gpu_memory_fraction" not in table:
        table.error(f"{table.where}scratch_bytes: only gpu_memory_fraction leaves it free; leave it out")
    if fraction and device_kind != "cuda":
        table.error(f"{table.where}gpu_memory_fraction: a pool of device {device_kind!r} is on no GPU; give bytes")
        return _Sized(None)
    if geometry is None or not (tokens or nbytes or fraction):
        return _Sized(None)
    try:
        crowded: tuple[str, ...] = ()
        if fraction:
            try:
                share = share_of(gpus, devices, fraction, scratch)
            except NoShare as error:
                return _Sized(Layout(geometry, kind, 1, multiple), f"gpu_memory_fraction: {error}")
            nbytes, crowded = share.nbytes, share.crowded
        pages = pages_for_tokens(geometry, tokens) if tokens else pages_for_bytes(geometry, nbytes, multiple)
        return _Sized(Layout(geometry, kind, pages, multiple), crowded=crowded)
    except ValueError as error:
        table.error(f"{table.where}{given[0]}: {error}")
        return _Sized(None)


def _geometry(table: Table, directory: Path) -> Geometry | None:
    named = table.get("geometry", fields.text, "glm-5.3")
    try:
        return load_geometry(named if named in PRESETS else str(directory / named))
    except ValueError as error:
        table.error(f"{table.where}geometry: {error}")
        return None


def _gpus(data: Mapping[str, object], key: str, where: str) -> tuple[str, ...]:
    """UUIDs as nvidia-smi -L prints them, or as much of each as tells it from the others."""
    names = fields.sequence(data, key, where, MAX_DEVICES)
    found = tuple(name for name in names if isinstance(name, str) and name.startswith("GPU-"))
    if len(found) != len(names) or not names:
        raise FieldError(f'{where}{key}: expected UUIDs such as "GPU-5a3c"; nvidia-smi -L lists them')
    if len(set(found)) != len(found):
        raise FieldError(f"{where}{key}: a GPU holds a slot once; name each GPU once")
    return found


def _fraction(data: Mapping[str, object], key: str, where: str) -> float:
    value = data[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise FieldError(f"{where}{key}: expected a fraction above 0 and at most 1, got {value!r}")
    return float(value)
