"""How large a pool is that takes a share of its GPUs' free memory: asked of the GPUs when the configuration is read."""

from collections.abc import Sequence

from radixd.gpu_pool.budget.capacity import pool_bytes
from radixd.gpu_pool.budget.scratch import BATCHED_TOKENS, logits_budget, scratch_bytes

CONTEXT = 1_048_576
"""The longest request of the engine that scratch is left for, unless the configuration says how much to leave."""


def share_bytes(gpus: Sequence[str], count: int, fraction: float, scratch: int) -> int:
    """Bytes of the pool on each of its GPUs, all alike: what the fullest one has to give.

    Args:
        gpus: UUIDs, or their beginnings; none: the first `count` that this process sees.
        fraction: of what is free once the scratch is set aside.
        scratch: bytes for what an engine takes outside the pool; 0: the top-k buffer and the indexer logits, in chunks,
            of BATCHED_TOKENS over CONTEXT.

    Raises ValueError: no such GPU, none that can be asked, or too little that is free.
    """
    # Torch, which the pool's memory imports, takes seconds: only who asks a GPU waits for it.
    try:
        from radixd.gpu_pool.cuda.gpu import find_gpus
        from radixd.gpu_pool.cuda.runtime import CudaError
        from radixd.gpu_pool.device import DeviceMemoryError
    except ImportError as error:
        raise ValueError(str(error)) from error

    try:
        return min(
            pool_bytes(
                gpu.free_bytes(),
                fraction,
                scratch or scratch_bytes(BATCHED_TOKENS, CONTEXT, logits_budget(gpu.total_bytes, fraction)),
            )
            for gpu in find_gpus(gpus, count)
        )
    except (DeviceMemoryError, CudaError) as error:
        raise ValueError(str(error)) from error
