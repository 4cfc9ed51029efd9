"""Is what matters evicted while what matters less stays?"""

from collections.abc import Sequence

from radixd.server.doctor.evidence import Evidence, NodeFacts
from radixd.server.doctor.finding import Fact, Finding
from radixd.server.doctor.scrape import Untold
from radixd.server.doctor.thresholds import OUTRANKED_SHARE

NAME = "PriorityInverted"


def priority_inverted(evidence: Evidence) -> Finding | None:
    """While pages are evicted for demand: which priorities are left to evict, and which stay.

    What was evicted is gone, and its priority with it; the tree shows whose turn it is. Two ways lead to an
    inversion: a policy that does not look at priorities, and locks on so much of low priority that only higher
    pages can go.
    """
    if evidence.tree is None:
        raise Untold("the tree is not in a scrape, only a running daemon has it")
    evicted = evidence.count("radixd_evicted_pages_total", tier="device", reason="demand")
    on_device = [node for node in evidence.tree if node.pages]
    priorities = sorted({node.priority for node in on_device})
    if not evicted or len(priorities) < 2:
        return None
    (policy, *_) = evidence.gauges("radixd_pool_info", "policy")
    facts = (
        Fact("pages evicted for demand", int(evicted)),
        Fact("policy", policy),
        Fact("priorities in the tree", ", ".join(map(str, priorities))),
    )
    if policy != "priority":
        return Finding(
            NAME,
            f"prefixes have {len(priorities)} different priorities, and the policy `{policy}` looks at none: what "
            "matters goes as soon as what does not",
            facts,
            '`policy = "priority"` evicts lower ones first, and the least recently used among equals',
        )
    return _locked_below(on_device, evidence.pages, facts)


def _locked_below(nodes: Sequence[NodeFacts], pages: int, facts: tuple[Fact, ...]) -> Finding | None:
    next_out = min((node.priority for node in nodes if not node.locked), default=None)
    if next_out is None:
        return None
    below = sum(node.pages for node in nodes if node.locked and node.priority < next_out)
    if below <= OUTRANKED_SHARE * pages:
        return None
    return Finding(
        NAME,
        f"leases lock {below:,} pages of lower priority than {next_out}, the lowest that can be evicted: pages of "
        f"priority {next_out} and more go in their place",
        (*facts, Fact("locked pages below it", below), Fact("lowest priority that can be evicted", next_out)),
        "run fewer requests of low priority at once, preempt some with Offload, or give their traffic a pool of its "
        "own: a priority orders eviction, and takes no lock away",
    )
