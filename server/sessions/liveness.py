"""How long a session may be silent, by a clock that no stall of the daemon moves."""

from dataclasses import dataclass

TICK_SECONDS = 1.0
"""How often the registry is told that time has passed, if the daemon runs freely."""


@dataclass(frozen=True, slots=True)
class Liveness:
    """Seconds; see Liveness in session.proto."""

    keepalive_seconds: float = 10.0
    grace_seconds: float = 10.0
    ttl_seconds: float = 30.0


class Silence:
    """The time since a session last spoke.

    One tick adds at most two periods, however late it comes, and a session is over only when a whole period more has
    passed in silence: whatever reached the socket while the daemon stood still is heard first.
    """

    def __init__(self, allowed: float):
        self.seconds = 0.0
        self._allowed = allowed
        self._overdue = 0.0

    def broken(self, allowed: float) -> None:
        """The session has spoken, and may be silent for `allowed` seconds from now."""
        self.seconds = 0.0
        self._allowed = allowed
        self._overdue = 0.0

    def over(self, elapsed: float) -> bool:
        """Counts a tick. True where the silence has lasted too long."""
        step = min(elapsed, 2 * TICK_SECONDS)
        if self.seconds > self._allowed:
            self._overdue += step
        self.seconds += step
        return self._overdue >= TICK_SECONDS
