"""Which phase the daemon is in, and what every call is told in it."""

from enum import StrEnum

from radixd.server.cache.refusal import Reason, Refusal


class State(StrEnum):
    """The daemon's phases, as a client sees them; they follow one another and never return."""

    STARTING = "STARTING"
    SERVING = "SERVING"
    DRAINING = "DRAINING"


class Gate:
    """Open while the daemon serves. Owned by the event loop; read it before each piece of new work."""

    def __init__(self) -> None:
        self.state = State.STARTING

    def check(self) -> None:
        """Return while serving; refuse with STARTING or DRAINING otherwise."""
        if self.state is State.SERVING:
            return
        if self.state is State.STARTING:
            raise Refusal(Reason.STARTING, "the daemon is starting: its pool memory is not ready yet; try again")
        raise Refusal(Reason.DRAINING, "the daemon is shutting down and takes no new work; try its successor")
