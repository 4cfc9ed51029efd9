"""How much host memory this process can still take before the kernel kills somebody for it."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from radixd.gpu_pool.device import DeviceMemoryError

ALLOCATION_CHUNK = 2**30
"""The kernel undoes an interrupted fallocate; in small steps a signal costs one step and not the pool."""


def check_fits(parts: Mapping[str, int], root: Path = Path("/")) -> None:
    """Raise DeviceMemoryError, naming the sum and each part, if `parts` do not fit this machine's memory together.

    Args:
        parts: what will be allocated, by name, in bytes; not what is allocated already, which the kernel counts.
        root: where /proc and /sys are found.
    """
    total = sum(parts.values())
    available, limit = available_host_bytes(root)
    if total <= available:
        return
    named = ", ".join(f"{name}: {nbytes:,}" for name, nbytes in sorted(parts.items()))
    raise DeviceMemoryError(
        f"{total:,} bytes of host memory are needed ({named}), but {limit} leaves {available:,} "
        f"({available / 2**30:.2f} GiB): "
        "make the pools smaller or raise the limit"
    )


def allocate(fd: int, nbytes: int) -> None:
    """Give the first `nbytes` of a file their memory or disk space; what it holds stays. Raises OSError."""
    for start in range(0, nbytes, ALLOCATION_CHUNK):
        os.posix_fallocate(fd, start, min(ALLOCATION_CHUNK, nbytes - start))


def available_host_bytes(root: Path = Path("/")) -> tuple[int, str]:
    """(bytes, what limits them): the least of MemAvailable and the room in every enclosing cgroup, v2 or v1.

    `root` is where /proc and /sys are found.
    """
    limits = [(_meminfo_available(root), "MemAvailable in /proc/meminfo"), *_cgroup_rooms(root)]
    return min(limits)


def _meminfo_available(root: Path) -> int:
    for line in (root / "proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no MemAvailable in /proc/meminfo")


def _cgroup_rooms(root: Path) -> Iterator[tuple[int, str]]:
    """Room in each memory cgroup from this process's own up to the mount's root."""
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            mount = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        # In a container the path may name the host's hierarchy: then only its upper folders exist here.
        folder = mount / path.lstrip("/")
        for group in (folder, *folder.parents):
            room = _room(group, *names)
            if room is not None:
                yield room, f"{group / names[0]}"
            if group == mount:
                break


def _room(group: Path, limit_name: str, usage_name: str, reclaimable_name: str) -> int | None:
    """Bytes below the group's limit, page cache that can be dropped counted as free; None without a limit."""
    try:
        limit = (group / limit_name).read_text().strip()
        usage = int((group / usage_name).read_text())
        stat = dict(line.split(maxsplit=1) for line in (group / "memory.stat").read_text().splitlines())
    except OSError:
        return None
    if limit == "max":
        return None
    return int(limit) - usage + int(stat.get(reclaimable_name, "0"))
