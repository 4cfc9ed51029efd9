"""Does the host tier cost copies and give nothing?"""

from radixd.server.doctor.evidence import Evidence
from radixd.server.doctor.finding import Fact, Finding
from radixd.server.doctor.thresholds import (
    HOST_EVICTED_BY_IN,
    HOST_PROMOTED_BY_IN,
    ROUND_TRIP_SECONDS,
    SKIPPED_SHARE,
)

NAME = "HostTierThrashes"
DO = {
    "outrun": "demand takes pages faster than they are saved: raise `free_target_pages`",
    "busy": "too many pages are under copies: raise `max_copy_pages`, or look for a slow disk",
    "full": "the host has no page to be had: give it more",
}


def host_tier_thrashes(evidence: Evidence) -> Finding | None:
    """Pages that leave the host unused, or come back as soon as they have left the device."""
    if not evidence.has_host:
        return None
    copied = evidence.count("radixd_copy_bytes_total", kind="demote") / evidence.gauge("radixd_page_bytes")
    evicted = evidence.count("radixd_evicted_pages_total", tier="host")
    demoted = evidence.count("radixd_tier_pages_total", kind="demote")
    promoted = evidence.count("radixd_tier_pages_total", kind="promote")
    facts = (
        Fact("pages copied to the host", round(copied)),
        Fact("pages that the host evicted", int(evicted)),
        Fact("pages that left the device for the host", int(demoted)),
        Fact("pages that came back", int(promoted)),
        Fact("host pages", int(evidence.gauge("radixd_pool_pages", tier="host"))),
    )
    if copied and evicted > HOST_EVICTED_BY_IN * copied and promoted < HOST_PROMOTED_BY_IN * copied:
        return Finding(
            NAME,
            f"of {copied:,.0f} pages that were copied to the host it evicted {evicted:,.0f}, and {promoted:,.0f} came "
            "back: copying costs, and nobody gains",
            facts,
            "a larger host tier; `write_through_selective`, which copies only what was hit twice; another eviction "
            "policy; or no host tier",
        )
    return _round_trips(evidence, min(demoted, promoted), facts)


def _round_trips(evidence: Evidence, pages: float, facts: tuple[Fact, ...]) -> Finding | None:
    if not evidence.seconds or pages * ROUND_TRIP_SECONDS <= evidence.pages * evidence.seconds:
        return None
    once = evidence.pages * evidence.seconds / pages
    return Finding(
        NAME,
        f"as many pages as the device has go to the host and come back every {once:,.0f} s: what is in use at once "
        "does not fit the device",
        (*facts, Fact("device pages", evidence.pages), Fact("seconds watched", round(evidence.seconds, 1))),
        "fewer concurrent conversations on this pool, or more device pages; the `priority` of prefixes that many share "
        "keeps them on the device",
    )


def host_tier_skipped(evidence: Evidence) -> Finding | None:
    """Pages that leave the device without a copy: the host tier is there, and does not get them."""
    if not evidence.has_host:
        return None
    skipped = evidence.counts("radixd_demote_skipped_pages_total", "reason")
    lost, demoted = sum(skipped.values()), evidence.count("radixd_tier_pages_total", kind="demote")
    if lost <= SKIPPED_SHARE * (lost + demoted):
        return None
    reason = max(skipped, key=lambda it: skipped[it])
    return Finding(
        "HostTierSkipped",
        f"{lost:,.0f} of {lost + demoted:,.0f} pages left the device without a copy, most of them as `{reason}`",
        (
            *(Fact(f"skipped, {name}", int(pages)) for name, pages in skipped.items()),
            Fact("pages that left the device for the host", int(demoted)),
        ),
        DO[reason],
    )
