"""Do ended sessions keep pages because a process of theirs lives?"""

from radixd.server.doctor.evidence import Evidence
from radixd.server.doctor.finding import Fact, Finding
from radixd.server.doctor.holders import largest


def retired_pages_stuck(evidence: Evidence) -> Finding | None:
    """Ended sessions with retired pages, all the time that was watched."""
    ended = int(evidence.lasting("radixd_sessions", state="ended"))
    pages = int(evidence.lasting("radixd_pages", tier="device", state="retired"))
    if not ended or not pages:
        return None
    return Finding(
        "RetiredPagesStuck",
        f"{ended} ended sessions have processes that live and may still write: their pages stay retired",
        (
            Fact("ended sessions", ended),
            Fact("retired pages", pages),
            *largest(evidence.sessions, "retired pages", lambda session: session.retired if session.ended else 0),
        ),
        "end those processes; where they are beyond reach and you are sure that nothing of them touches the pool, "
        "`radixd reap SESSION NAME`",
    )
