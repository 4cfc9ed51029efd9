"""Device memory across processes: a folder for each allocation, with its bytes and one file for each holder.

allocations/GPU-SIZE-SERIAL/ holds `bytes`, `owner.PID.START` until the owner frees it, and `user.PID.START` for each
process that has opened its IPC handle. The memory is in use while any holder lives; whoever looks next removes what
nobody holds.
"""

import fcntl
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fake_gpu import holder
from fake_gpu.errors import Failed, cudaError_t

GRANULE = 2 << 20
"""Bytes that a driver gives out memory in."""


@dataclass(frozen=True)
class Allocation:
    """One, by its folder's path. `gpu` is the machine's index, whatever a process sees."""

    folder: Path

    @property
    def gpu(self) -> int:
        """The machine's index."""
        return int(self.folder.name.split("-")[0])

    @property
    def size(self) -> int:
        """Bytes asked for."""
        return int(self.folder.name.split("-")[1])

    @property
    def file(self) -> Path:
        """Its bytes."""
        return self.folder / "bytes"

    def holders(self, role: str = "*") -> list[str]:
        """The living ones."""
        names = [path.name.partition(".")[2] for path in self.folder.glob(f"{role}.*.*")]
        return [name for name in names if holder.alive(name)]

    def hold(self, role: str) -> None:
        """In this process's name."""
        (self.folder / f"{role}.{holder.own_name()}").touch()

    def remember_user(self) -> None:
        """This process has had it open: whoever owns it cannot know that it has closed it."""
        (self.folder / f"known-{holder.own_name()}").touch()

    def known_users(self) -> list[str]:
        """The living ones that have had it open, and may have it still."""
        names = [path.name.removeprefix("known-") for path in self.folder.glob("known-*")]
        return [name for name in names if holder.alive(name)]

    def drop(self, role: str) -> None:
        """No longer."""
        (self.folder / f"{role}.{holder.own_name()}").unlink()


class Ledger:
    """All allocations of the machine."""

    def __init__(self, root: Path) -> None:
        self._folder = root / "allocations"
        self._lock = root / "ledger.lock"

    def allocate(self, gpu: int, size: int, capacity: int) -> Allocation:
        """`size` bytes for this process. Raises Failed where less is free."""
        with self.locked():
            if rounded(size) > capacity - self._used(gpu):
                raise Failed(cudaError_t.cudaErrorMemoryAllocation)
            allocation = Allocation(self._folder / f"{gpu}-{size}-{uuid.uuid4().hex[:12]}")
            allocation.folder.mkdir()
            with allocation.file.open("wb") as file:
                file.truncate(size)
            allocation.hold("owner")
        return allocation

    def used(self, gpu: int) -> int:
        """Bytes of `gpu` that some living process holds."""
        with self.locked():
            return self._used(gpu)

    def named(self, name: str) -> Allocation | None:
        """The allocation of that folder, if it is there."""
        allocation = Allocation(self._folder / name)
        return allocation if allocation.file.exists() else None

    def _used(self, gpu: int) -> int:
        used = 0
        for folder in list(self._folder.glob(f"{gpu}-*")):
            allocation = Allocation(folder)
            if allocation.holders():
                used += rounded(allocation.size)
            else:
                shutil.rmtree(folder)
        return used

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep all other processes from changing holders."""
        with self._lock.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def rounded(size: int) -> int:
    """What `size` bytes take of the device."""
    return -(-size // GRANULE) * GRANULE
