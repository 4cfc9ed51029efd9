"""What one request costs: its KV on one device, its page table, and what a cached prefix saves it."""

from collections.abc import Mapping
from dataclasses import dataclass

from radixd.gpu_pool.budget import BudgetError
from radixd.gpu_pool.budget.capacity import pages_to_hold
from radixd.gpu_pool.budget.cost import INDEX, Cost

TABLE_ITEMSIZE = 4
"""Slot and page ids are int32."""


@dataclass(frozen=True)
class Context:
    """A request of `tokens`, in whole pages, on one device."""

    cost: Cost
    tokens: int

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise BudgetError(f"context {self.tokens} is less than one token")

    @property
    def pages(self) -> int:
        """Pages that it fills, the last perhaps in part."""
        return pages_to_hold(self.tokens, self.cost.page_tokens)

    @property
    def parts(self) -> Mapping[str, int]:
        """Component -> bytes."""
        return {name: nbytes * self.pages for name, nbytes in self.cost.page_parts.items()}

    @property
    def nbytes(self) -> int:
        """Bytes in the pool, padding included."""
        return self.pages * self.cost.page_stride

    @property
    def slot_table_bytes(self) -> int:
        """A table with one id a token: SGLang's req_to_token row."""
        return self.tokens * TABLE_ITEMSIZE

    @property
    def page_table_bytes(self) -> int:
        """A table with one id a page: vLLM's block table row."""
        return self.pages * TABLE_ITEMSIZE

    @property
    def index_read_bytes(self) -> int:
        """Index K that scoring one new token reads: all of the context's, on all index layers. 0 without an indexer."""
        return self.tokens * self.cost.parts.get(INDEX, 0) * self.cost.page_slots // self.cost.page_tokens


@dataclass(frozen=True)
class Indexer:
    """How the lightning indexer scores one query against one cached key."""

    layers: int
    """That score; the others reuse their choice."""
    heads: int
    head_dim: int

    @property
    def flop_per_pair(self) -> int:
        """A multiplication and an addition a dimension and head, on every layer that scores."""
        return 2 * self.heads * self.head_dim * self.layers


@dataclass(frozen=True)
class Hit:
    """A cached prefix of a request: `asked` tokens, of which whole pages count."""

    context: Context
    asked: int

    def __post_init__(self) -> None:
        if not 0 <= self.asked < self.context.tokens:
            raise BudgetError(
                f"hit {self.asked} is outside [0, {self.context.tokens - 1}]: of a context of {self.context.tokens} "
                "tokens at least one is left to compute"
            )

    @property
    def pages(self) -> int:
        """Pages that are found."""
        return self.asked // self.context.cost.page_tokens

    @property
    def tokens(self) -> int:
        """P: tokens that are found."""
        return self.pages * self.context.cost.page_tokens

    @property
    def suffix(self) -> int:
        """S: tokens that are left to compute."""
        return self.context.tokens - self.tokens

    @property
    def suffix_pages(self) -> int:
        """Pages that must be allocated."""
        return self.context.pages - self.pages

    @property
    def parts_saved(self) -> Mapping[str, int]:
        """Component -> bytes that are not written."""
        return {name: nbytes * self.pages for name, nbytes in self.context.cost.page_parts.items()}

    @property
    def pairs_saved(self) -> int:
        """P²/2: a prefix's queries against its own keys."""
        return self.tokens**2 // 2

    @property
    def cross_pairs(self) -> int:
        """P·S, which no hit saves: the suffix's queries still read the prefix's keys."""
        return self.tokens * self.suffix

    @property
    def own_pairs(self) -> int:
        """S²/2, the suffix against itself."""
        return self.suffix**2 // 2
