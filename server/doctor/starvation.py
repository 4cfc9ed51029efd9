"""Are long requests refused while short ones pass?"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from radixd.server.doctor.evidence import Evidence, SessionFacts
from radixd.server.doctor.finding import Fact, Finding
from radixd.server.doctor.holders import largest
from radixd.server.doctor.thresholds import REFUSED_BY_GRANTED

NAME = "LongRequestsStarve"


class _Obstacle(NamedTuple):
    """What is in the way, by radixd_allocation_failures_total's label `reason`."""

    why: str
    held: str
    of_session: Callable[[SessionFacts], float]
    do: str


OBSTACLES: Mapping[str, _Obstacle] = {
    "reserved": _Obstacle(
        "enough pages are free or evictable, but they are reserved for requests that were admitted",
        "reserved pages",
        lambda session: session.reserved,
        "lower `reserve_to`, or admit fewer long requests at once; put a long request and what waits behind it into "
        "one group, so that short ones do not pass it",
    ),
    "retired": _Obstacle(
        "enough pages were given up, but wait for a step to complete or a process to die",
        "retired pages",
        lambda session: session.retired,
        "let idle engines report their last completed step, and end what still lives of ended sessions",
    ),
    "held": _Obstacle(
        "leases hold the pages",
        "leased pages",
        lambda session: session.leased,
        "put a long request and what waits behind it into one group, so that short ones do not take each page that "
        "comes free; preempt one with Offload; or a larger pool",
    ),
    "host": _Obstacle(
        "the host tier is full",
        "leased pages",
        lambda session: session.leased,
        "restore or release offloaded requests, or give the pool a larger host tier",
    ),
}


def long_requests_starve(evidence: Evidence) -> Finding | None:
    """Where refused requests are far longer than granted ones, or none at all is granted."""
    failures = dict(evidence.counts("radixd_allocation_failures_total", "reason"))
    failures.pop("never_fits", None)
    refused = evidence.count("radixd_refused_pages_count")
    if not failures or not refused:
        return None
    needed = evidence.count("radixd_refused_pages_sum") / refused
    granted = evidence.prompt_tokens / evidence.page_tokens
    if granted and needed <= REFUSED_BY_GRANTED * granted:
        return None
    reason = max(failures, key=lambda it: failures[it])
    obstacle = OBSTACLES[reason]
    passing = f"while requests of {granted:,.0f} pass" if granted else "and nothing is granted"
    state = evidence.now.by("radixd_pages", "state", pool=evidence.pool, tier="device")
    return Finding(
        NAME,
        f"requests that need {needed:,.0f} pages are refused {passing}: {obstacle.why}",
        (
            Fact("pages that a refused operation needed, mean", round(needed, 1)),
            Fact("pages of a granted Acquire's prompt, mean", round(granted, 1)),
            *(Fact(f"refused, {reason}", int(times)) for reason, times in failures.items()),
            Fact("max_fit pages now", int(evidence.gauge("radixd_max_fit_pages"))),
            Fact("reserved pages now", int(evidence.gauge("radixd_reserved_pages"))),
            *(Fact(f"{name} pages now", int(pages)) for name, pages in state.items() if name != "system"),
            *largest(evidence.sessions, obstacle.held, obstacle.of_session),
        ),
        obstacle.do,
    )
