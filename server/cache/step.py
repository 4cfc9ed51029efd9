"""The step fence: what waits until the engine has finished a step."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

from radixd.server.cache.refusal import Reason, Refusal


class StepMark(NamedTuple):
    """What a Batch says of its caller: its number, the replies received, the steps enqueued and those finished."""

    seq: int
    ack: int
    launched: int
    completed: int


class StepFence:
    """Counts a session's steps and holds what must not happen before one of them has completed."""

    def __init__(self) -> None:
        self.launched = 0
        self.completed = 0
        self._waiting: list[tuple[int, int, Callable[[], object]]] = []
        self._order = count()

    def check(self, launched: int, completed: int) -> None:
        """Refuses counts that fall, or steps that complete before they are launched."""
        if launched < self.launched:
            message = f"launched: {launched} is below the {self.launched} said before; steps are only ever added"
            raise Refusal(Reason.BAD_FIELD, message, field="launched")
        if not self.completed <= completed <= launched:
            message = f"completed: {completed} must lie between {self.completed}, said before, and launched {launched}"
            raise Refusal(Reason.BAD_FIELD, message, field="completed")

    def after(self, step: int, action: Callable[[], object]) -> None:
        """Runs `action` once `step` has completed: now, where it has."""
        if step <= self.completed:
            action()
        else:
            heapq.heappush(self._waiting, (step, next(self._order), action))

    def advance(self, launched: int, completed: int) -> None:
        """Takes checked counts and runs what waited for them, in order of step, then of arrival."""
        self.launched, self.completed = launched, completed
        while self._waiting and self._waiting[0][0] <= completed:
            heapq.heappop(self._waiting)[2]()

    def abandon(self) -> None:
        """Forgets everything that waits."""
        self._waiting.clear()

    def __iter__(self) -> Iterator[tuple[int, Callable[[], object]]]:
        """What waits, with its step, in no order."""
        return ((step, action) for step, _, action in self._waiting)
