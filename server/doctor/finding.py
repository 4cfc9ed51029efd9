"""What a question found."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fact:
    """A number that was read, or a name."""

    what: str
    value: float | str


@dataclass(frozen=True)
class Finding:
    """A cause, the numbers that name it, and what to do next."""

    name: str
    """An alert's, without its prefix, where there is one."""
    cause: str
    evidence: tuple[Fact, ...]
    next_step: str
