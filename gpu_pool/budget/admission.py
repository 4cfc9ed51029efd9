"""Which requests fit into a pool together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from radixd.gpu_pool.budget import BudgetError
from radixd.gpu_pool.budget.capacity import pages_to_hold

Outcome = Literal["admitted", "waits", "never"]
"""waits: until others end. never: the empty pool could not hold it (NEVER_FITS)."""


@dataclass(frozen=True)
class Verdict:
    """What becomes of one request."""

    tokens: int
    pages: int
    outcome: Outcome
    missing: int
    """Pages that are lacking beside those admitted before it, or in the whole pool where it never fits."""


@dataclass(frozen=True)
class Admission:
    """The requests in the order in which they come, none with a cached prefix, each reserving its whole length.

    The rule is the daemon's (reserve_to): a request that does not fit waits and reserves nothing, those behind it may
    pass. A request that has used up its reservation keeps one page more, for growth, which is not counted here.
    """

    verdicts: tuple[Verdict, ...]
    pages: int
    page_tokens: int

    @property
    def free(self) -> int:
        """Pages that stay free."""
        return self.pages - sum(verdict.pages for verdict in self.verdicts if verdict.outcome == "admitted")

    @property
    def tokens_for_all(self) -> int:
        """Usable tokens of a pool that holds all of them at once."""
        return sum(verdict.pages for verdict in self.verdicts) * self.page_tokens


def admit(requests: Sequence[int], pages: int, page_tokens: int) -> Admission:
    """Admit requests of so many tokens, one after the other, into an empty pool of `pages` usable pages."""
    verdicts: list[Verdict] = []
    free = pages
    for tokens in requests:
        if tokens < 1:
            raise BudgetError(f"admit {tokens}: a request has at least one token")
        needed = pages_to_hold(tokens, page_tokens)
        if needed > pages:
            verdicts.append(Verdict(tokens, needed, "never", needed - pages))
        elif needed > free:
            verdicts.append(Verdict(tokens, needed, "waits", needed - free))
        else:
            verdicts.append(Verdict(tokens, needed, "admitted", 0))
            free -= needed
    return Admission(tuple(verdicts), pages, page_tokens)
