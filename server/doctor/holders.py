"""Who holds pages, for evidence."""

from collections.abc import Callable, Iterable
from heapq import nlargest

from radixd.server.doctor.evidence import SessionFacts
from radixd.server.doctor.finding import Fact

SHOWN = 3


def largest(
    sessions: Iterable[SessionFacts] | None, what: str, figure: Callable[[SessionFacts], float]
) -> tuple[Fact, ...]:
    """The sessions with the most of something, none of them without any; none where they are not known."""
    holders = [session for session in sessions or () if figure(session)]
    return tuple(Fact(f"{what}, {it.title}", figure(it)) for it in nlargest(SHOWN, holders, key=figure))
