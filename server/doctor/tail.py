"""Do unfilled last pages waste the pool?"""

from radixd.server.doctor.evidence import Evidence
from radixd.server.doctor.finding import Fact, Finding
from radixd.server.doctor.thresholds import TAIL_WASTE_SHARE


def tail_waste(evidence: Evidence) -> Finding | None:
    """Many short requests: each leaves half of a page empty, on average."""
    waste, page_bytes = evidence.gauge("radixd_tail_waste_bytes"), evidence.gauge("radixd_page_bytes")
    share = waste / (evidence.pages * page_bytes)
    if share <= TAIL_WASTE_SHARE:
        return None
    leases = evidence.gauge("radixd_leases", state="active")
    mean = evidence.gauge("radixd_active_lease_tokens") / max(leases, 1)
    return Finding(
        "TailWaste",
        f"{share:.1%} of the pool are slots without a token in the last pages of {leases:,.0f} active leases of "
        f"{mean:,.0f} tokens",
        (
            Fact("bytes without a token, on a device", int(waste)),
            Fact("pages that they would fill", int(waste // page_bytes)),
            Fact("active leases", int(leases)),
            Fact("tokens of an active lease, mean", round(mean)),
            Fact("tokens of a page", evidence.page_tokens),
        ),
        "fewer short requests at once, or so many pages more; pages of 64 tokens cannot be smaller where the DSA "
        "indexer's kernels read them",
    )
