"""Does the cache hit often without first tokens coming sooner?"""

from radixd.server.doctor.evidence import Evidence
from radixd.server.doctor.finding import Fact, Finding
from radixd.server.doctor.scrape import Untold
from radixd.server.doctor.thresholds import (
    HIT_SHARE,
    HOST_HIT_SHARE,
    LONG_PROMPT_TOKENS,
    PAIRS_LEFT_BY_SAVED,
    PREFILL_TOKENS_PER_SECOND,
    SHORT_HIT_SHARE,
    SHORT_HIT_TOKENS,
)

NAME = "HitsSpareLittle"


def hits_spare_little(evidence: Evidence) -> Finding | None:
    """Where more than half of the tokens are hits, and these are few, left with long suffixes, or slow to come."""
    if not evidence.acquires:
        raise Untold("no Acquire was granted meanwhile")
    hit_tokens = evidence.count("radixd_hit_tokens_total")
    share = hit_tokens / max(evidence.count("radixd_requested_tokens_total"), 1)
    if share <= HIT_SHARE:
        return None
    found = _short(evidence) or _cross(evidence) or _from_host(evidence, hit_tokens)
    if found is None:
        return None
    cause, evidences, do = found
    return Finding(
        NAME,
        f"{share:.0%} of the tokens are hits, but {cause}",
        (
            Fact("share of the requested tokens that hit", round(share, 3)),
            Fact("granted Acquires", evidence.acquires),
            Fact("tokens of a prompt, mean", round(evidence.prompt_tokens)),
            *evidences,
        ),
        do,
    )


_Answer = tuple[str, tuple[Fact, ...], str]


def _short(evidence: Evidence) -> _Answer | None:
    """A few long hits that make the rate."""
    short = evidence.count("radixd_hit_length_tokens_bucket", le=f"{SHORT_HIT_TOKENS:.1f}")
    missed = evidence.count("radixd_hit_length_tokens_bucket", le="0.0")
    if evidence.prompt_tokens <= LONG_PROMPT_TOKENS or short <= SHORT_HIT_SHARE * evidence.acquires:
        return None
    return (
        f"{short / evidence.acquires:.0%} of the requests found {SHORT_HIT_TOKENS:,} tokens or fewer: "
        "a few long hits make the rate",
        (
            Fact(f"Acquires that found {SHORT_HIT_TOKENS:,} tokens or fewer", int(short)),
            Fact("of them, those that found none", int(missed)),
        ),
        "route requests that share a prefix to the same pool; keep what varies (time stamps, ids) out of the start of "
        "prompts; raise the priority of prefixes that many share",
    )


def _cross(evidence: Evidence) -> _Answer | None:
    """Long suffixes, each token of which is scored against the whole prefix all the same."""
    saved = evidence.count("radixd_indexer_pairs_saved_total")
    left = evidence.count("radixd_indexer_pairs_left_total")
    if not saved or left <= PAIRS_LEFT_BY_SAVED * saved:
        return None
    return (
        f"what follows the hits is long: scoring it against them (P·S) costs {left / saved:.1f} times what they spared "
        "(P²/2)",
        (
            Fact("indexer pairs spared, P²/2", int(saved)),
            Fact("indexer pairs left, P·S", int(left)),
        ),
        "a long suffix has to be computed, no cache spares it: publish while prefilling, so that the next turn's hit "
        "covers it, and look at what makes prompts differ after the prefix; `radixd plan --hit` weighs the two",
    )


def _from_host(evidence: Evidence, hit_tokens: float) -> _Answer | None:
    """Hits that wait for a copy longer than it takes to compute them."""
    if not evidence.has_host:
        return None
    share = evidence.count("radixd_hit_tokens_total", tier="host") / max(hit_tokens, 1)
    copies = evidence.count("radixd_copies_total", kind="promote")
    seconds = evidence.count("radixd_copy_seconds_total", kind="promote")
    tokens = evidence.count("radixd_tier_pages_total", kind="promote") * evidence.page_tokens
    if share <= HOST_HIT_SHARE or not copies or tokens >= PREFILL_TOKENS_PER_SECOND * seconds:
        return None
    return (
        f"{share:.0%} of them come from the host, and wait for copies that bring {tokens / seconds:,.0f} tokens a "
        "second: computing is about as fast",
        (
            Fact("share of the hits that came from the host", round(share, 3)),
            Fact("promotions", int(copies)),
            Fact("seconds of a promotion, from its plan on, mean", round(seconds / copies, 3)),
            Fact("tokens that promotions brought a second", round(tokens / seconds)),
        ),
        "look at what the copier is busy with (radixd_copies_in_flight, a slow disk below a state directory); raise "
        "`promote_min_pages`, or give the device more pages",
    )
