"""Records of what a program did wrong: one text file a process, one line each, read when the test ends."""

import os
import traceback
from pathlib import Path

_OWN = Path(__file__).parent
_PRESENTED = _OWN.parent / "cuda"


class Record:
    """Appends lines to FOLDER/PID; a line is written whole or not at all, so a killed process leaves whole lines."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / str(os.getpid())

    def add(self, text: str) -> None:
        """One line."""
        with self._file.open("a") as file:
            file.write(f"pid {os.getpid()}: {text}\n")


class Violations(Record):
    """What no CUDA program may do, though a real driver may let it pass."""

    def found(self, text: str) -> None:
        """Record it with the place in the program that made the call."""
        self.add(f"{text} (at {_caller()})")


def _caller() -> str:
    for frame in reversed(traceback.extract_stack()):
        path = Path(frame.filename)
        if _OWN not in path.parents and _PRESENTED not in path.parents:
            return f"{'/'.join(path.parts[-3:])}:{frame.lineno} in {frame.name}"
    return "a stream's thread"


def lines(folder: Path) -> list[str]:
    """All that was recorded, by any process."""
    return [line for file in sorted(folder.iterdir()) for line in file.read_text().splitlines()]
