"""What schedulers have asked of a pool, and how long it took."""

from collections import Counter
from enum import StrEnum

from radixd.server.cache.histogram import Histogram
from radixd.server.cache.refusal import Reason, Refusal

VERBS = ("match", "acquire", "allocate", "insert", "free", "release", "move", "offload", "restore")
"""The operations of a Batch; a unary call is a Batch of one."""

SECONDS = (10e-6, 20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 50e-3, 0.5)
BATCH_OPERATIONS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1_024, 4_096)
REFUSED_PAGES = (1, 4, 16, 64, 256, 1_024, 4_096, 16_384)


class Shortage(StrEnum):
    """Why pages were refused."""

    NEVER_FITS = "never_fits"  # the pool is too small
    RESERVED = "reserved"  # what is there was promised to others
    RETIRED = "retired"  # given-up pages have yet to come free
    HELD = "held"  # leases hold the rest
    HOST = "host"  # the host tier is full


class VerbCounts:
    """Of one verb. Every operation is in `seconds`, those that were refused are in `refused` too."""

    __slots__ = ("refused", "seconds")

    def __init__(self) -> None:
        self.seconds = Histogram(SECONDS)
        self.refused: Counter[Reason] = Counter()

    def count(self, refused: Reason | None, seconds: float) -> None:
        """Counts one."""
        self.seconds.observe(seconds)
        if refused is not None:
            self.refused[refused] += 1


class Work:
    """Counts of one pool since its epoch began. Retries that are answered from the window of replies are not work."""

    def __init__(self) -> None:
        self.verbs = {verb: VerbCounts() for verb in VERBS}
        self.unknown = VerbCounts()  # operations without a verb that this daemon knows
        self.shortages: Counter[Shortage] = Counter()
        self.refused_pages = Histogram(REFUSED_PAGES)  # needed by what may be tried again, of either tier
        self.batch_operations = Histogram(BATCH_OPERATIONS)  # in each Batch; unary calls are in `verbs` alone
        self.batch_seconds = Histogram(SECONDS)  # from its arrival to its reply, the turns of others included

    def operation(self, verb: str | None, refusal: Refusal | None, seconds: float) -> None:
        """Counts one, carried out or refused: on the hot path, about 0.4 µs."""
        counts = self.verbs[verb] if verb else self.unknown
        counts.count(None if refusal is None else refusal.reason, seconds)
        if refusal is not None:
            if refusal.reason in (Reason.NO_PAGES, Reason.NEVER_FITS):
                self.shortages[shortage(refusal)] += 1
            if refusal.reason is Reason.NO_PAGES:
                self.refused_pages.observe(int(refusal.facts["needed"]))

    def batch(self, operations: int, seconds: float) -> None:
        """Counts a Batch."""
        self.batch_operations.observe(operations)
        self.batch_seconds.observe(seconds)


def shortage(refusal: Refusal) -> Shortage:
    """What a NO_PAGES or NEVER_FITS was short of, by the figures that came with it."""
    facts = refusal.facts
    if refusal.reason is Reason.NEVER_FITS:
        return Shortage.NEVER_FITS
    if facts.get("tier") == "host":
        return Shortage.HOST
    needed, room = int(facts["needed"]), int(facts["free"]) + int(facts["evictable"])
    if needed <= room:
        return Shortage.RESERVED
    return Shortage.RETIRED if needed <= room + int(facts["retired"]) else Shortage.HELD
