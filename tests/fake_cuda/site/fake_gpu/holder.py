"""Which process holds something, named so that its death is seen: PID and start time, as /proc tells them."""

import os
from pathlib import Path

_STATE, _START = 0, 19
"""Fields of /proc/PID/stat, counted behind the command's name."""


def own_name() -> str:
    """This process."""
    return f"{os.getpid()}.{_fields(os.getpid())[_START]}"


def alive(name: str) -> bool:
    """Whether the process that `own_name` named still has its memory. A zombie has none."""
    pid, start = name.split(".")
    try:
        fields = _fields(int(pid))
    except (FileNotFoundError, ProcessLookupError):
        return False
    return fields[_START] == start and fields[_STATE] not in "ZX"


def _fields(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
