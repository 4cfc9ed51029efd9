"""All of it for one model and one pool: what `radixd plan` shows."""

from dataclasses import dataclass

from radixd.gpu_pool.budget.admission import Admission
from radixd.gpu_pool.budget.context import Context, Hit, Indexer
from radixd.gpu_pool.budget.cost import INDEX, Cost
from radixd.gpu_pool.budget.node import Node
from radixd.gpu_pool.budget.scratch import LogitsWorkspace
from radixd.gpu_pool.geometry import Geometry
from radixd.gpu_pool.layout import usable_pages

REFERENCE_BYTES = 100 * 10**9
"""What models are compared by where no pool is given: 100 GB, page 0 included."""


@dataclass(frozen=True)
class Model:
    """A model, and how its KV is spread."""

    geometry: Geometry
    cost: Cost
    heads: int
    """Of its indexer, if it has one; no part of a geometry."""
    dcp: int = 1

    @property
    def title(self) -> str:
        """Which it is, and how that was read."""
        return f"{self.geometry.name} ({self.geometry.source}): {self.geometry.num_layers} layers"

    @property
    def indexer(self) -> Indexer | None:
        """How it scores, MTP layers not counted; None without an indexer. A head is as wide as its key."""
        for component in self.geometry.components:
            if component.name == INDEX:
                return Indexer(len(component.layers), self.heads, component.regions[0].width)
        return None


@dataclass(frozen=True)
class PoolSize:
    """A pool on one device."""

    cost: Cost
    pages: int
    given_bytes: int
    """What it was sized from, at least `nbytes`."""
    origin: str
    """Where the size came from, for people."""

    @property
    def tokens(self) -> int:
        """Usable tokens, over all ranks that share a context."""
        return self.pages * self.cost.page_tokens

    @property
    def nbytes(self) -> int:
        """Bytes that it takes, page 0 included."""
        return (self.pages + 1) * self.cost.page_stride

    def holds(self, context: Context) -> int:
        """How many such requests fit at once."""
        return self.pages // context.pages


@dataclass(frozen=True)
class Scratch:
    """What the engine takes outside the pool."""

    topk_bytes: int
    prefill: LogitsWorkspace
    """Of a full batch of prompt tokens over the longest context."""
    decode: LogitsWorkspace
    """Of a decode batch: requests × (drafts + 1) rows."""
    budget: int | None
    """The most that a matrix of logits may take; None: not known, so all rows at once."""

    @property
    def nbytes(self) -> int:
        """To be left free: the buffer, and the larger of the two matrices."""
        return self.topk_bytes + max(self.prefill.nbytes, self.decode.nbytes)


@dataclass(frozen=True)
class Plan:
    """The answers; what was not asked for is None."""

    model: Model
    contexts: tuple[Context, ...]
    batch: int
    """Requests of each context at once."""
    pool: PoolSize | None
    host_pages: int
    """Of the host tier, whose pages are not padded; 0: none."""
    scratch: Scratch | None
    hit: Hit | None
    admission: Admission | None
    node: Node | None

    @property
    def reference_tokens(self) -> int:
        """Usable tokens in REFERENCE_BYTES."""
        cost = self.model.cost
        return usable_pages(REFERENCE_BYTES, cost.page_stride) * cost.page_tokens
