"""One Batch being built: its operations, and what to do with each answer."""

import time
from collections.abc import Callable
from typing import TypeVar

from radixd.client import Batch, Operation, Session
from radixd.server.replay.tally import Tally

T = TypeVar("T")


class StepBatch:
    """Ask with `ops.<verb>(…)`, pass the Operation to `expect`, then `run` once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.ops: Batch = session.batch()
        self._verbs: set[str] = set()
        self._then: list[Callable[[], None]] = []

    def expect(self, verb: str, operation: Operation[T], then: Callable[[Operation[T]], None]) -> None:
        """`then(operation)` runs when the reply is here, in the order of the operations."""
        self._verbs.add(verb)
        self._then.append(lambda: then(operation))

    def run(self, tally: Tally, *, reconnect: bool = False) -> None:
        """Send it, wait for the reply, act on every answer. Its time counts for each verb in it.

        `reconnect` breaks the stream while the reply is on its way: the Batch is sent again, and must act once.
        """
        began = time.perf_counter()
        reply = self.ops.send()
        if reconnect:
            self._session.reconnect()
            tally.reconnects += 1
        reply.result()
        seconds = time.perf_counter() - began
        tally.batches += 1
        for verb in self._verbs:
            tally.latencies[verb].record(seconds)
        for act in self._then:
            act()


def must(operation: Operation[T]) -> None:
    """For operations that no daemon may refuse here: raise what it said."""
    operation.result()
