"""From memory to pages: what a pool of so many bytes holds, and what a request lacks."""

from dataclasses import dataclass

from radixd.gpu_pool.budget import BudgetError
from radixd.gpu_pool.budget.scratch import checked_fraction


def pool_bytes(free_bytes: int, fraction: float, scratch_bytes: int = 0) -> int:
    """Bytes of a pool that takes `fraction` of a GPU's free memory once `scratch_bytes` of it are set aside.

    int((free_bytes - scratch_bytes) * fraction). BudgetError where nothing is left.
    """
    checked_fraction(fraction)
    if free_bytes < 0:
        raise BudgetError(f"free memory {free_bytes:,} bytes is negative")
    if scratch_bytes < 0:
        raise BudgetError(f"scratch_bytes {scratch_bytes:,} is negative")
    if scratch_bytes >= free_bytes:
        raise BudgetError(
            f"scratch_bytes {scratch_bytes:,} leaves nothing of the {free_bytes:,} bytes that are free: "
            "free memory on the GPU, or shorten the engine's batches"
        )
    return int((free_bytes - scratch_bytes) * fraction)


def pages_to_hold(tokens: int, page_tokens: int) -> int:
    """Whole pages that `tokens` take."""
    return -(-tokens // page_tokens)


@dataclass(frozen=True)
class Shortfall:
    """What a pool lacks to hold one request."""

    pages: int
    tokens: int
    nbytes: int

    def __str__(self) -> str:
        return f"{self.tokens:,} tokens ({self.pages:,} pages, {self.nbytes:,} bytes a device) are missing"


def shortfall(context: int, pages: int, page_tokens: int, page_stride: int) -> Shortfall | None:
    """What a pool of `pages` lacks to hold `context` tokens; None where it holds them.

    Tokens are those beyond the pool's whole pages, bytes those of whole pages more.
    """
    missing = pages_to_hold(context, page_tokens) - pages
    if missing <= 0:
        return None
    return Shortfall(missing, context - pages * page_tokens, missing * page_stride)
