"""Calls of the Sessions and Admin services, which are nobody's hot path."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.sessions.work import VerbCounts


class Calls:
    """Counts by method since the daemon began; a method is there from its registration on."""

    def __init__(self) -> None:
        self.methods: dict[str, VerbCounts] = {}

    def register(self, method: str) -> VerbCounts:
        """The counts of a new method."""
        counts = self.methods[method] = VerbCounts()
        return counts


@contextmanager
def counted(counts: VerbCounts) -> Iterator[None]:
    """Counts what runs inside by how it ends; what is no Refusal ends the call as a bug does."""
    began, reason = perf_counter(), None
    try:
        yield
    except Refusal as refusal:
        reason = refusal.reason
        raise
    except Exception:
        reason = Reason.BUG
        raise
    finally:
        counts.count(reason, perf_counter() - began)
