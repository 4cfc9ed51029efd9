"""Is the pool, or the daemon, out of order?"""

from radixd.server.doctor.evidence import Evidence
from radixd.server.doctor.finding import Fact, Finding
from radixd.server.doctor.scrape import Scrape


def daemon_silent(now: Scrape) -> Finding | None:
    """The event loop did not answer the scrape, which therefore says nothing of pools."""
    if not now.has("radixd_loop_answers") or now.total("radixd_loop_answers"):
        return None
    stall = now.total("radixd_event_loop_longest_stall_seconds")
    return Finding(
        "LoopStalls",
        "the daemon's event loop stands still: nobody is answered, and the scrape has no pool",
        (Fact("radixd_loop_answers", 0), Fact("longest stall, s", round(stall, 1))),
        "give the daemon a core of its own and no CPU limit; if it lasts, take its stack (docs/runbook.md says how, at "
        "RadixdLoopStalls) and restart it",
    )


def pool_broken(evidence: Evidence) -> Finding | None:
    """The pool is served no longer."""
    if not evidence.gauge("radixd_pool_broken"):
        return None
    return Finding(
        "PoolBroken",
        "the pool is stopped: its ledger did not add up, or its device was lost",
        (Fact("radixd_pool_broken", 1), Fact("sessions", int(evidence.gauge("radixd_sessions")))),
        "the first CRITICAL line of the log says which; save the log, mend the device if it was lost, restart, and "
        "report a broken ledger",
    )


def gpu_silent(evidence: Evidence) -> Finding | None:
    """Its GPUs were asked, and do not answer."""
    if not evidence.gauge("radixd_pool_silent"):
        return None
    return Finding(
        "GpuSilent",
        "the pool's GPUs have not answered within `copy_deadline_seconds`: it is NOT_SERVING until they do",
        (
            Fact("radixd_pool_silent", 1),
            Fact("copies in flight", int(evidence.gauge("radixd_copies_in_flight"))),
        ),
        "`nvidia-smi` and the kernel's log (Xid) on the node: a GPU that hangs comes back by a reset, one that fell "
        "off the bus by a reboot; the pool serves again with its GPUs, or after a restart",
    )


def ledger_mismatch(evidence: Evidence) -> Finding | None:
    """Pages without an owner, or with two."""
    tiers = evidence.gauges("radixd_pool_pages", "tier")
    owned = evidence.gauges("radixd_pages", "tier")
    wrong = {tier: int(size - owned.get(tier, 0.0)) for tier, size in tiers.items() if size != owned.get(tier)}
    if not wrong:
        return None
    return Finding(
        "LedgerMismatch",
        "the owners of pages do not sum to the pool: a page has two owners (below 0), or none",
        tuple(Fact(f"unaccounted {tier} pages", pages) for tier, pages in wrong.items()),
        "`radixd check` recounts everything and stops the pool if it is true; take engines off it first, and report it",
    )
