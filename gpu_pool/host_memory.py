"""How much host memory this process can still take before the kernel kills somebody for it."""

from collections.abc import Iterator
from pathlib import Path


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
