"""What schedulers have asked of a pool, and how long it took."""

from collections import Counter

from radixd.server.cache.histogram import Histogram
from radixd.server.cache.refusal import Reason, Refusal

VERBS = ("match", "acquire", "allocate", "insert", "free", "release", "move", "offload", "restore")
"""The operations of a Batch; a unary call is a Batch of one."""

SECONDS = (10e-6, 20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 50e-3, 0.5)
BATCH_OPERATIONS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1_024, 4_096)


class VerbCounts:
    """Of one verb. Every operation is in `seconds`, those that were refused are in `refused` too."""

    __slots__ = ("refused", "seconds")

    def __init__(self) -> None:
        self.seconds = Histogram(SECONDS)
        self.refused: Counter[Reason] = Counter()


class Work:
    """Counts of one pool since its epoch began. Retries that are answered from the window of replies are not work."""

    def __init__(self) -> None:
        self.verbs = {verb: VerbCounts() for verb in VERBS}
        self.unknown = VerbCounts()  # operations without a verb that this daemon knows
        self.batch_operations = Histogram(BATCH_OPERATIONS)  # in each Batch; unary calls are in `verbs` alone
        self.batch_seconds = Histogram(SECONDS)  # from its arrival to its reply, the turns of others included

    def operation(self, verb: str | None, refusal: Refusal | None, seconds: float) -> None:
        """Counts one, carried out or refused: on the hot path, about 0.4 µs."""
        counts = self.verbs[verb] if verb else self.unknown
        counts.seconds.observe(seconds)
        if refusal is not None:
            counts.refused[refusal.reason] += 1

    def batch(self, operations: int, seconds: float) -> None:
        """Counts a Batch."""
        self.batch_operations.observe(operations)
        self.batch_seconds.observe(seconds)
