"""Does the pool hold fewer tokens than was expected, and why?"""

from collections.abc import Iterator
from dataclasses import dataclass

from radixd.gpu_pool.budget.capacity import pages_to_hold
from radixd.gpu_pool.budget.cost import INDEX, Cost
from radixd.server.byte_text import both_units
from radixd.server.doctor.evidence import Evidence
from radixd.server.doctor.finding import Fact, Finding
from radixd.server.doctor.scrape import Untold
from radixd.server.doctor.thresholds import CAPACITY_SHARE

NAME = "CapacityBelowExpected"
MILLION = 2**20


@dataclass(frozen=True)
class _Pool:
    """As it is."""

    pages: int
    page_tokens: int
    page_bytes: int
    parts: dict[str, int]
    devices: int

    @property
    def tokens(self) -> int:
        return self.pages * self.page_tokens

    @property
    def nbytes(self) -> int:
        return (self.pages + 1) * self.page_bytes

    @property
    def cell(self) -> int:
        return sum(self.parts.values())


def capacity_below_expected(evidence: Evidence) -> Finding | None:
    """Against what was expected; without that, only by the requests that the empty pool could not hold."""
    pool = _read(evidence)
    never = int(evidence.count("radixd_allocation_failures_total", reason="never_fits"))
    refused = Fact("operations refused as NEVER_FITS", never)
    expected = evidence.expected
    if expected is None or expected.is_met(pool.tokens, pool.nbytes):
        if never:
            return _never_fits(pool, refused)
        if expected is None:
            raise Untold("what was expected of it? Say --expect 1M, or a plan such as preset=glm-5.3,bytes=100GB")
        return None
    wanted = expected.wanted(pool.nbytes)
    (geometry, *_) = [*evidence.gauges("radixd_pool_info", "geometry"), ""]
    cost = expected.cost_for(geometry)
    planned_bytes = expected.pool.nbytes if expected.pool else 0
    missing = pages_to_hold(wanted, pool.page_tokens) - pool.pages
    causes = [
        *_by_geometry(pool, cost),
        *_by_bytes(pool, planned_bytes),
        *_by_counting(pool, wanted, cost),
    ] or [f"the pool was given {missing:,} pages too few"]
    return Finding(
        NAME,
        f"the pool holds {pool.tokens:,} tokens where {wanted:,} are expected: " + "; ".join(causes),
        (
            Fact("usable tokens", pool.tokens),
            Fact("expected tokens", wanted),
            Fact("missing pages", missing),
            Fact("missing bytes on a device", missing * pool.page_bytes),
            Fact("bytes of the pool on a device, page 0 included", pool.nbytes),
            *(Fact(f"{name} bytes a token", nbytes) for name, nbytes in pool.parts.items()),
            *(Fact(f"{name} bytes a token, expected", nbytes) for name, nbytes in (cost.parts if cost else {}).items()),
            refused,
        ),
        f"`radixd plan --tokens {wanted}` says what that takes with the geometry that you mean; then give the pool "
        "those tokens, or a checkpoint's config whose layers are right (`radixd config check` shows what a file means)",
    )


def _read(evidence: Evidence) -> _Pool:
    parts = {name: int(nbytes) for name, nbytes in evidence.gauges("radixd_token_bytes", "component").items()}
    return _Pool(
        evidence.pages,
        evidence.page_tokens,
        int(evidence.gauge("radixd_page_bytes")),
        parts,
        int(evidence.gauge("radixd_pool_devices")),
    )


def _never_fits(pool: _Pool, refused: Fact) -> Finding:
    return Finding(
        NAME,
        f"requests are sent that the empty pool of {pool.tokens:,} tokens could not hold",
        (Fact("usable tokens", pool.tokens), refused),
        "shorten them (the refusal names the most that fits), or plan a larger pool: `radixd plan --admit 1M,128K`",
    )


def _by_geometry(pool: _Pool, cost: Cost | None) -> Iterator[str]:
    """A token that costs more than it should."""
    if cost is None or pool.cell <= cost.cell:
        return
    fewer = 100 * (1 - cost.cell / pool.cell)
    yield f"a token costs {pool.cell:,} bytes in place of {cost.cell:,} ({fewer:.1f} % fewer fit the same memory)"
    for name, nbytes in pool.parts.items():
        expected = cost.parts.get(name, 0)
        if not expected:
            yield f"{name} is no part of what was expected"
        elif nbytes > expected:
            yield _more_layers(name, nbytes, expected, cost)


def _more_layers(name: str, nbytes: int, expected: int, cost: Cost) -> str:
    layers, rest = divmod(nbytes * cost.layers[name], expected)
    if rest:
        return f"{name} has {nbytes:,} bytes a token in place of {expected:,}"
    times, odd = divmod(nbytes, expected)
    dcp = f", or DCP {times}, which keeps the index of all ranks on each" if name == INDEX and not odd else ""
    mtp = ", as with an MTP layer" if layers == cost.layers[name] + 1 else ""
    return f"{layers} {name} layers in place of {cost.layers[name]}{dcp}{mtp}"


def _by_bytes(pool: _Pool, planned: int) -> Iterator[str]:
    if pool.nbytes < CAPACITY_SHARE * planned:
        yield (
            f"it takes {both_units(pool.nbytes)} of a device where the plan has {both_units(planned)}: look at its "
            "tokens or bytes, and at the fraction, weights and scratch by which they were chosen"
        )


def _by_counting(pool: _Pool, wanted: int, cost: Cost | None) -> Iterator[str]:
    """Tokens that are there, or were never meant, by another count."""
    millions, rest = divmod(wanted, MILLION)
    if not rest and pool.tokens >= millions * 10**6 // pool.page_tokens * pool.page_tokens:
        yield f"1M is {MILLION:,} tokens, and the pool was given {millions:,},000,000 or so"
    elif wanted <= pool.tokens + pool.page_tokens:
        yield "page 0, which takes padding tokens, and the rest of a last page hold none"
    if cost and cost.page_tokens > pool.page_tokens:
        yield (
            f"the expectation counts {cost.page_tokens} tokens a page, those of all ranks under DCP, and the pool's "
            f"{pool.page_tokens} are one rank's"
        )
    if pool.devices > 1 and pool.tokens * pool.devices >= wanted:
        yield (
            f"its {pool.devices} devices hold the same pages, so their memory does not add up: a pool for each rank "
            "would"
        )
