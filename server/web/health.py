"""Whether the daemon can take work, and why not."""

from collections.abc import Iterable

from radixd.server.gate import Gate, State
from radixd.server.pools.pool import Pool

REASON_LENGTH = 500


def unready(gate: Gate, pools: Iterable[Pool]) -> list[str]:
    """One line for each reason; none while all pools are served. On the daemon's loop."""
    phase = [] if gate.state is State.SERVING else [f"the daemon is {gate.state.lower()}"]
    return phase + [f"pool {pool.name}: {one_line(pool.trouble[:REASON_LENGTH])}" for pool in pools if pool.trouble]


def one_line(text: str) -> str:
    """The same words without line breaks."""
    return " ".join(text.split())
