"""What a scheduler process tells its parent: which requests are over, and what it cost."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Literal

from radixd.server.replay.latency import Latencies

EndKind = Literal["finished", "aborted", "never_fit"]

MAX_MISMATCH_TEXTS = 8


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one request ended."""

    index: int
    end: EndKind
    prompt_tokens: int
    hit_tokens: int
    """Of its first Acquire."""
    host_hit_tokens: int = 0
    """Of them, those that came from the host."""
    peer_hit_tokens: int = 0
    """Of them, those that were imported from another pool."""


def _by_verb() -> defaultdict[str, Latencies]:
    return defaultdict(Latencies)


@dataclass(slots=True)
class Tally:
    """Counts since the last report."""

    bytes_written: int = 0
    bytes_verified: int = 0
    mismatches: int = 0
    """Pages that held a wrong byte."""
    mismatch_texts: list[str] = field(default_factory=list)
    rollbacks: int = 0
    preemptions: int = 0
    offloads: int = 0
    """Of the preemptions, those that the host took in."""
    restores: int = 0
    reconnects: int = 0
    steps: int = 0
    batches: int = 0
    output_tokens: int = 0
    latencies: defaultdict[str, Latencies] = field(default_factory=_by_verb)
    """By verb: from sending the Batch that carries it to having its reply."""

    def mismatch(self, text: str) -> None:
        """Count one, and keep its text while there are few."""
        self.mismatches += 1
        if len(self.mismatch_texts) < MAX_MISMATCH_TEXTS:
            self.mismatch_texts.append(text)

    def add(self, other: "Tally") -> None:
        """Count another's too."""
        self.bytes_written += other.bytes_written
        self.bytes_verified += other.bytes_verified
        self.mismatches += other.mismatches
        self.mismatch_texts = (self.mismatch_texts + other.mismatch_texts)[:MAX_MISMATCH_TEXTS]
        self.rollbacks += other.rollbacks
        self.preemptions += other.preemptions
        self.offloads += other.offloads
        self.restores += other.restores
        self.reconnects += other.reconnects
        self.steps += other.steps
        self.batches += other.batches
        self.output_tokens += other.output_tokens
        for verb, latencies in other.latencies.items():
            self.latencies[verb].add(latencies)


@dataclass(frozen=True, slots=True)
class Progress:
    """One message up the pipe."""

    outcomes: tuple[Outcome, ...]
    tally: Tally


@dataclass(frozen=True, slots=True)
class Failure:
    """The scheduler gives up; the text says why."""

    text: str
