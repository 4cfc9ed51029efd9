"""What an operator expected a pool to hold."""

from dataclasses import dataclass

from radixd.gpu_pool.budget.cost import Cost, cost_of
from radixd.gpu_pool.budget.plan import PoolSize
from radixd.gpu_pool.layout import usable_pages
from radixd.gpu_pool.presets import PRESETS
from radixd.server.doctor.thresholds import CAPACITY_SHARE


@dataclass(frozen=True)
class Expectation:
    """A number of tokens, a model in the pool's own bytes, or a plan; as `radixd plan` computes it."""

    tokens: int = 0
    """That must fit; 0: what the plan says."""
    cost: Cost | None = None
    """Of the model; None: of the preset that the pool is named for."""
    pool: PoolSize | None = None
    """None: the bytes that the pool has."""

    def wanted(self, pool_bytes: int) -> int:
        """Tokens that a pool of so many bytes on a device, page 0 included, should hold."""
        if self.tokens or self.cost is None:
            return self.tokens
        if self.pool:
            return self.pool.tokens
        return usable_pages(pool_bytes, self.cost.page_stride) * self.cost.page_tokens

    def is_met(self, tokens: int, pool_bytes: int) -> bool:
        """Whether so many tokens are enough: all of a number that was named, nearly all of a plan's."""
        share = 1.0 if self.tokens else CAPACITY_SHARE
        return tokens >= share * self.wanted(pool_bytes)

    def cost_for(self, geometry: str) -> Cost | None:
        """What a token should cost in a pool of that geometry's name; None: nobody knows."""
        if self.cost is None and geometry in PRESETS:
            return cost_of(PRESETS[geometry]())
        return self.cost
