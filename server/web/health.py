"""Whether the daemon can take work, and why not."""

from collections.abc import Iterable

from radixd.server.gate import Gate, State
from radixd.server.sessions.served_pool import ServedPool

REASON_LENGTH = 500


def unready(gate: Gate, pools: Iterable[ServedPool]) -> list[str]:
    """One line for each reason; none while all pools are served. On the daemon's loop."""
    phase = [] if gate.state is State.SERVING else [f"the daemon is {gate.state.lower()}"]
    broken = [
        f"pool {pool.name} is stopped: {one_line(pool.broken[:REASON_LENGTH])}"
        for pool in pools
        if pool.broken is not None
    ]
    return phase + broken


def one_line(text: str) -> str:
    """The same words without line breaks."""
    return " ".join(text.split())
