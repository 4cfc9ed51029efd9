"""Copies in flight: planned here, carried out elsewhere, reported back once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from radixd.server.cache.node import Node
from radixd.server.cache.results import NO_PAGES, CopyKind, CopyPlan, PageIds


@dataclass(frozen=True, slots=True)
class _Open:
    pages: int
    reserved: PageIds  # leased host pages that nothing else names until the copy has ended
    anchor: Node | None  # where the copy's own lock sits
    finish: Callable[[str], None]


class Copies:
    """Every copy has an id, and ends once. Whoever opens one has made sure that its pages stay until then."""

    def __init__(self) -> None:
        self.pages = 0  # under a copy
        self._open: dict[int, _Open] = {}
        self._plans: list[CopyPlan] = []
        self._ids = count(1)

    def plan(
        self,
        kind: CopyKind,
        device_pages: PageIds,
        host_pages: PageIds,
        finish: Callable[[str], None],
        *,
        reserved: PageIds = NO_PAGES,
        anchor: Node | None = None,
    ) -> int:
        """Opens a copy between the tiers. `finish` is told how it ended: with "" or with what went wrong."""
        copy_id = self.open(len(device_pages), finish, reserved, anchor)
        self._plans.append(CopyPlan(copy_id, kind, device_pages, host_pages))
        return copy_id

    def open(
        self, pages: int, finish: Callable[[str], None], reserved: PageIds = NO_PAGES, anchor: Node | None = None
    ) -> int:
        """Opens a copy that somebody else plans."""
        copy_id = next(self._ids)
        self._open[copy_id] = _Open(pages, reserved, anchor, finish)
        self.pages += pages
        return copy_id

    def __contains__(self, copy_id: int) -> bool:
        """Whether the copy is in flight."""
        return copy_id in self._open

    def finish(self, copy_id: int, error: str) -> None:
        """Closes a copy, and does what waited for it."""
        ended = self._open.pop(copy_id)
        self.pages -= ended.pages
        ended.finish(error)

    def take_plans(self) -> tuple[CopyPlan, ...]:
        """Plans made since the last call."""
        plans = tuple(self._plans)
        self._plans.clear()
        return plans

    def reserved_pages(self) -> list[PageIds]:
        """Leased host pages under copies."""
        return [it.reserved for it in self._open.values()]

    def anchors(self) -> list[Node]:
        """The ends of the paths that copies hold locked."""
        return [it.anchor for it in self._open.values() if it.anchor is not None]
