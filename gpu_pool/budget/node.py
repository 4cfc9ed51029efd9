"""What a node's GPUs hold together."""

from dataclasses import dataclass

from radixd.gpu_pool.budget import BudgetError


@dataclass(frozen=True)
class NodeShare:
    """One way to share a node's GPUs."""

    pools: int
    tokens: int
    """Different tokens that the node holds."""
    copies: int
    """Of each token's latent."""


@dataclass(frozen=True)
class Node:
    """A node whose GPUs have a pool of `pool_tokens` in each group of `dcp` ranks.

    MLA's latent has no heads to divide, so every group that attends to a token holds all of it.
    """

    gpus: int
    pool_tokens: int
    dcp: int = 1

    def __post_init__(self) -> None:
        if self.gpus < 1 or self.gpus % self.dcp:
            raise BudgetError(f"gpus {self.gpus} is no positive multiple of dcp {self.dcp}")

    @property
    def groups(self) -> int:
        """Of ranks that share a context."""
        return self.gpus // self.dcp

    @property
    def tensor_parallel(self) -> NodeShare:
        """One pool over all GPUs: every group holds the same tokens."""
        return NodeShare(1, self.pool_tokens, self.groups)

    @property
    def data_parallel_attention(self) -> NodeShare:
        """A pool for each group, with requests of its own."""
        return NodeShare(self.groups, self.groups * self.pool_tokens, 1)


def index_buffer_slots(size: int, page_size: int, dcp: int, dcp_replicated: bool = False) -> int:
    """Slots of SGLang's index K buffer on one rank whose latent has `size` of its own (DSATokenToKVPool).

    All ranks' tokens, and each rank's padding page but one; a pool that is replicated whole (`dcp_replicated`, a draft
    model's) has been given all ranks' tokens as its size.
    """
    return size if dcp_replicated else (size + page_size) * dcp - page_size
