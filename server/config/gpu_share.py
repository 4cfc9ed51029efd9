"""How large a pool is that takes a share of its GPUs' free memory: asked of the GPUs when the configuration is read."""

from collections.abc import Sequence
from dataclasses import dataclass

from radixd.gpu_pool.budget import BudgetError
from radixd.gpu_pool.budget.capacity import pool_bytes
from radixd.gpu_pool.budget.scratch import BATCHED_TOKENS, logits_budget, scratch_bytes

UNUSED_SHARE = 0.9
"""With less free, somebody uses the GPU."""

CONTEXT = 1_048_576
"""The longest request of the engine that scratch is left for, unless the configuration says how much to leave."""


class NoShare(Exception):
    """The GPUs cannot be asked, or have too little to give: not the configuration's fault, but the machine's now."""


@dataclass(frozen=True)
class Share:
    """What GPUs have to give."""

    nbytes: int
    """On each of them, all alike: what the fullest one has."""
    crowded: tuple[str, ...]
    """A line for each GPU that somebody else uses."""


def share_of(gpus: Sequence[str], count: int, fraction: float, scratch: int) -> Share:
    """The pool's share of its GPUs.

    Args:
        gpus: UUIDs, or their beginnings; none: the first `count` that this process sees.
        fraction: of what is free once the scratch is set aside.
        scratch: bytes for what an engine takes outside the pool; 0: the top-k buffer and the indexer logits, in chunks,
            of BATCHED_TOKENS over CONTEXT.

    Raises NoShare: no such GPU, none that can be asked, or too little that is free.
    """
    # Torch, which the pool's memory imports, takes seconds: only who asks a GPU waits for it.
    try:
        from radixd.gpu_pool.cuda.gpu import find_gpus
        from radixd.gpu_pool.cuda.runtime import CudaError
        from radixd.gpu_pool.device import DeviceMemoryError
    except ImportError as error:
        raise NoShare(str(error)) from error

    try:
        shares, crowded = [], []
        for gpu in find_gpus(gpus, count):
            free, total = gpu.free_bytes(), gpu.total_bytes
            if free < UNUSED_SHARE * total:  # an engine's weights, or what the last daemon's clients still hold
                crowded.append(f"GPU {gpu.uuid}: the pool's share is of the {free} bytes free of {total}")
            left = scratch or scratch_bytes(BATCHED_TOKENS, CONTEXT, logits_budget(total, fraction))
            shares.append(pool_bytes(free, fraction, left))
        return Share(min(shares), tuple(crowded))
    except (DeviceMemoryError, CudaError, BudgetError) as error:
        raise NoShare(str(error)) from error
