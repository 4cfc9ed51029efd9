"""All questions, asked of one pool."""

from collections.abc import Callable
from dataclasses import dataclass

from radixd.server.doctor.capacity import capacity_below_expected
from radixd.server.doctor.copies import copies_fail, copy_overdue
from radixd.server.doctor.decode import decode_reads_long_contexts
from radixd.server.doctor.evidence import Evidence
from radixd.server.doctor.finding import Finding
from radixd.server.doctor.hits import hits_spare_little
from radixd.server.doctor.host_tier import host_tier_skipped, host_tier_thrashes
from radixd.server.doctor.locks import lock_held_long
from radixd.server.doctor.priorities import priority_inverted
from radixd.server.doctor.retired import retired_pages_stuck
from radixd.server.doctor.scrape import Untold
from radixd.server.doctor.starvation import long_requests_starve
from radixd.server.doctor.stopped import gpu_silent, ledger_mismatch, pool_broken
from radixd.server.doctor.tail import tail_waste

Question = Callable[[Evidence], Finding | None]
"""Raises Untold where the evidence does not reach."""

QUESTIONS: dict[str, Question] = {
    "is it stopped?": pool_broken,
    "does its ledger not add up?": ledger_mismatch,
    "are its GPUs silent?": gpu_silent,
    "is capacity below the expected?": capacity_below_expected,
    "are long requests refused while short ones pass?": long_requests_starve,
    "does a high hit rate bring no faster first token?": hits_spare_little,
    "does decode cost grow with context?": decode_reads_long_contexts,
    "do idle sessions hold locks?": lock_held_long,
    "do ended sessions keep pages?": retired_pages_stuck,
    "does the host tier thrash?": host_tier_thrashes,
    "do pages leave without a copy?": host_tier_skipped,
    "are priorities inverted?": priority_inverted,
    "do last pages waste the pool?": tail_waste,
    "are copies overdue?": copy_overdue,
    "do copies fail?": copies_fail,
}


@dataclass(frozen=True)
class Diagnosis:
    """Of one pool."""

    pool: str
    findings: tuple[Finding, ...]
    denied: tuple[str, ...]
    """Questions whose answer is no."""
    untold: tuple[str, ...]
    """What these data do not tell, and why."""


def examine(evidence: Evidence) -> Diagnosis:
    """Ask everything."""
    findings: list[Finding] = []
    denied: list[str] = []
    untold: list[str] = []
    for question, ask in QUESTIONS.items():
        try:
            finding = ask(evidence)
        except Untold as why:
            untold.append(f"{question} {why}")
            continue
        except (ArithmeticError, LookupError, ValueError) as error:  # no daemon of this version has written that
            untold.append(f"{question} these numbers make no sense: {error!r}")
            continue
        if finding is None:
            denied.append(question)
        else:
            findings.append(finding)
    if evidence.sessions is None:
        untold.append("who holds pages? only a running daemon names its sessions")
    return Diagnosis(evidence.pool, tuple(findings), tuple(denied), tuple(untold))
