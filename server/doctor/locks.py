"""Do leases hold their prefixes although nobody works on them?"""

from radixd.server.doctor.evidence import Evidence, SessionFacts
from radixd.server.doctor.finding import Fact, Finding
from radixd.server.doctor.holders import largest
from radixd.server.doctor.thresholds import IDLE_SECONDS, OLD_LOCK_SECONDS


def lock_held_long(evidence: Evidence) -> Finding | None:
    """Locks of silent sessions, and very old ones."""
    idle = int(evidence.gauge("radixd_idle_locks_held"))
    oldest = evidence.gauge("radixd_oldest_lock_seconds")
    if not idle and oldest <= OLD_LOCK_SECONDS:
        return None
    if idle:
        cause = (
            f"{idle} leases of sessions that have been silent for {IDLE_SECONDS:.0f} s or longer hold their prefixes"
        )
    else:
        cause = f"a lease has held its prefix for {oldest:,.0f} s"
    return Finding(
        "LockHeldLong",
        f"{cause}: what they lock cannot be evicted",
        (
            Fact("locks of silent sessions", idle),
            Fact("locks in all", int(evidence.gauge("radixd_locks_held"))),
            Fact("age of the oldest lock, s", round(oldest)),
            Fact("protected pages", int(evidence.gauge("radixd_pages", tier="device", state="protected"))),
            *largest(evidence.sessions, "seconds silent with active leases", _silent),
        ),
        "an open stream never expires: end the process of a scheduler that hangs, and its pages are free within a "
        "second; where requests wait for tools, release with `keep` or offload; `radixd reap` only when nothing of it "
        "can write",
    )


def _silent(session: SessionFacts) -> float:
    waits = session.active_leases and session.idle_seconds >= IDLE_SECONDS and not session.ended
    return round(session.idle_seconds) if waits else 0.0
