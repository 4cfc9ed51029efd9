"""Does decoding cost so much because contexts are long?"""

from radixd.gpu_pool.budget.cost import INDEX
from radixd.server.doctor.evidence import Evidence
from radixd.server.doctor.finding import Fact, Finding
from radixd.server.doctor.thresholds import DECODE_INDEX_BYTES, DEVICE_BYTES_PER_SECOND

NAME = "DecodeReadsLongContexts"
LENGTHS = "radixd_lease_length_tokens"
LONG_TOKENS = 262_144
"""A bound of radixd_lease_length_tokens."""


def decode_reads_long_contexts(evidence: Evidence) -> Finding | None:
    """Every decoded token is scored against its whole context: a step reads each active context's index."""
    token_bytes = evidence.gauges("radixd_token_bytes", "component").get(INDEX, 0.0)
    tokens = evidence.gauge("radixd_active_lease_tokens")
    step_bytes = tokens * token_bytes
    if step_bytes <= DECODE_INDEX_BYTES:
        return None
    leases = evidence.gauge("radixd_leases", state="active")
    mean = tokens / max(leases, 1)
    return Finding(
        NAME,
        f"a decode step reads {step_bytes / 1e9:,.1f} GB of index keys, all of {leases:,.0f} contexts of {mean:,.0f} "
        f"tokens: {1e3 * step_bytes / DEVICE_BYTES_PER_SECOND:,.1f} ms of an H200's memory bandwidth before it attends "
        "to anything",
        (
            Fact("active leases", int(leases)),
            Fact("tokens of their contexts", int(tokens)),
            Fact("index bytes a token", int(token_bytes)),
            Fact("index bytes that a step reads", int(step_bytes)),
            Fact("index bytes that a token of a mean context reads", int(mean * token_bytes)),
            *_lengths(evidence, token_bytes),
        ),
        "fewer long contexts at once on one rank, or more ranks (data-parallel attention, or DCP); a larger pool would "
        "admit more of them and make it worse",
    )


def _lengths(evidence: Evidence, token_bytes: float) -> tuple[Fact, ...]:
    """Of leases that have ended: whether such contexts are usual."""
    ended = evidence.count(f"{LENGTHS}_count")
    if not ended:
        return ()
    mean = evidence.count(f"{LENGTHS}_sum") / ended
    long = ended - evidence.count(f"{LENGTHS}_bucket", le=f"{LONG_TOKENS:.1f}")
    return (
        Fact("leases that have ended", int(ended)),
        Fact(f"of them, those above {LONG_TOKENS:,} tokens", int(long)),
        Fact("tokens of a lease at its end, mean", round(mean)),
        Fact("index bytes that its last token read, mean", int(mean * token_bytes)),
    )
