"""Do copies end, and end well?"""

from radixd.server.doctor.evidence import Evidence
from radixd.server.doctor.finding import Fact, Finding


def copy_overdue(evidence: Evidence) -> Finding | None:
    """Copies that have not ended in time: a GPU or a disk that is silent."""
    overdue = int(evidence.lasting("radixd_copies_overdue"))
    if not overdue:
        return None
    return Finding(
        "CopyOverdue",
        f"{overdue} copies are beyond their deadline: a GPU or a disk is silent, and their pages stay pinned",
        (
            Fact("copies overdue", overdue),
            Fact("copies in flight", int(evidence.gauge("radixd_copies_in_flight"))),
            Fact("pages in copy", int(evidence.gauge("radixd_in_copy_pages"))),
        ),
        "the log names the copies; look at the GPU (`nvidia-smi`, its errors) and the disk of the state directory; one "
        "that never ends is ended by a restart alone",
    )


def copies_fail(evidence: Evidence) -> Finding | None:
    """Copies that ended with an error."""
    failed = evidence.counts("radixd_copies_failed_total", "kind")
    if not failed:
        return None
    return Finding(
        "CopiesFail",
        f"{sum(failed.values()):,.0f} copies have failed: what they were to bring is computed again, what they were to "
        "save is dropped",
        tuple(Fact(f"failed, {kind}", int(copies)) for kind, copies in failed.items()),
        "the log has each with its error: usually the disk of the state directory is full or broken, or a device is",
    )
