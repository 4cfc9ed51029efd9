"""A daemon between whose tiers every third copy fails, and leaves other bytes behind where it should have written."""

import sys
from concurrent.futures import Future
from itertools import count

import numpy as np
import numpy.typing as npt

from radixd.gpu_pool import tier_copy
from radixd.gpu_pool.host import HostPool
from radixd.gpu_pool.memory import PoolMemory
from radixd.server.cli import main

_save, _load, _copies = tier_copy.save_pages, tier_copy.load_pages, count(1)


def save_pages(memory: PoolMemory, host: HostPool, device_pages: npt.ArrayLike, host_pages: npt.ArrayLike) -> Future:
    if next(_copies) % 3:
        return _save(memory, host, device_pages, host_pages)
    # Pages in another order are as good as garbage, unless all are the same.
    _save(memory, host, device_pages, np.roll(np.asarray(host_pages), 1)).result()
    raise OSError("planted")


def load_pages(memory: PoolMemory, host: HostPool, host_pages: npt.ArrayLike, device_pages: npt.ArrayLike) -> Future:
    if next(_copies) % 3:
        return _load(memory, host, host_pages, device_pages)
    _load(memory, host, host_pages, np.roll(np.asarray(device_pages), 1)).result()
    raise OSError("planted")


# Only as a program: a test that imports this file for its path must keep its own copies whole.
if __name__ == "__main__":
    tier_copy.save_pages, tier_copy.load_pages = save_pages, load_pages
    sys.exit(main())
