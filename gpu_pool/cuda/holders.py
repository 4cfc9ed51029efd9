"""Who else uses a GPU: for messages, when its memory is not free."""

import os
import re
from pathlib import Path

GPU_FILE = re.compile(r"/dev/nvidia\d+")
MOST_NAMED = 8


def named_holders(root: Path = Path("/")) -> str:
    """Pids and names of other processes that have a GPU open, as far as /proc shows them here, for a message.

    They may use any GPU: the kernel does not tell which of a process's descriptors holds memory.
    `root` is where /proc is found.
    """
    found = [
        f"{folder.name} ({_name(folder)})"
        for folder in sorted((root / "proc").glob("[0-9]*"), key=lambda folder: int(folder.name))
        if folder.name != str(os.getpid()) and _holds_gpu(folder)
    ]
    if not found:
        return "no process that this one can see has a GPU open"
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return f"processes with a GPU open: {', '.join(found[:MOST_NAMED])}{more}"


def _holds_gpu(process: Path) -> bool:
    try:
        descriptors = list((process / "fd").iterdir())
    except OSError:  # it has ended, or is another user's
        return False
    return any(GPU_FILE.fullmatch(_target(descriptor)) for descriptor in descriptors)


def _target(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except OSError:  # closed meanwhile
        return ""


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        return "?"
