"""Latencies in buckets that grow with them, so that processes send and add counts, not samples."""

import math
from collections import Counter
from dataclasses import dataclass, field

BUCKETS_PER_OCTAVE = 8
"""A quantile is exact to 2^(1/8), 9 %."""


@dataclass(slots=True)
class Latencies:
    """A histogram of seconds."""

    counts: Counter[int] = field(default_factory=Counter)

    def record(self, seconds: float) -> None:
        """Count one sample."""
        self.counts[math.floor(math.log2(max(seconds, 1e-9)) * BUCKETS_PER_OCTAVE)] += 1

    def add(self, other: "Latencies") -> None:
        """Count another histogram's samples too."""
        self.counts.update(other.counts)

    @property
    def samples(self) -> int:
        """How many."""
        return self.counts.total()

    def quantile(self, share: float) -> float:
        """The upper edge, in seconds, of the bucket that the quantile lies in; 0 without samples."""
        wanted = share * self.samples
        for bucket in sorted(self.counts):
            wanted -= self.counts[bucket]
            if wanted <= 0:
                return float(2.0 ** ((bucket + 1) / BUCKETS_PER_OCTAVE))
        return 0.0
