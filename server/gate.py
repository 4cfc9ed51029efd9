"""Which phase the daemon is in, and what every call is told in it."""

import time
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
        self._enter(State.STARTING)

    @property
    def state(self) -> State:
        """The phase now."""
        return self._state

    @state.setter
    def state(self, state: State) -> None:
        self._enter(state)

    def _enter(self, state: State) -> None:
        self._state = state
        self.since = time.monotonic()  # in seconds, when the phase began

    def check(self) -> None:
        """Return while serving; refuse with STARTING or DRAINING otherwise."""
        if self.state is State.SERVING:
            return
        if self.state is State.STARTING:
            raise Refusal(Reason.STARTING, "the daemon is starting: its pool memory is not ready yet; try again")
        raise Refusal(Reason.DRAINING, "the daemon is shutting down and takes no new work; try its successor")
