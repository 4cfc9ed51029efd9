"""What a pool counts while it is used. Each life of a daemon counts from zero."""

from dataclasses import dataclass, fields
from typing import Self

from radixd.v1 import admin_pb2


@dataclass(frozen=True, slots=True)
class PageCounts:
    """Pages that went one way or another."""

    evicted_pages: int = 0
    demoted_pages: int = 0
    demote_skipped_pages: int = 0
    promoted_pages: int = 0
    offloaded_pages: int = 0
    restored_pages: int = 0
    failed_copy_pages: int = 0
    imported_pages: int = 0
    lent_pages: int = 0

    @property
    def left_device(self) -> int:
        """Cached pages that left the device: dropped on demand, or copied to the host before."""
        return self.evicted_pages + self.demoted_pages

    @classmethod
    def of(cls, pool: admin_pb2.PoolOccupancy) -> Self:
        """Since the daemon's start."""
        return cls(**{field.name: getattr(pool, field.name) for field in fields(cls)})

    def __add__(self, other: Self) -> Self:
        return type(self)(**{it.name: getattr(self, it.name) + getattr(other, it.name) for it in fields(self)})

    def __sub__(self, other: Self) -> Self:
        return type(self)(**{it.name: getattr(self, it.name) - getattr(other, it.name) for it in fields(self)})
