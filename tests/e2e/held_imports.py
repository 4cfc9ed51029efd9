"""A daemon whose imports begin only once the file named by RADIXD_HOLD is gone."""

import os
import sys
import time
from concurrent.futures import Future
from pathlib import Path

import numpy.typing as npt

from radixd.gpu_pool import peer_copy
from radixd.gpu_pool.memory import PoolMemory
from radixd.server.cli import main

_import = peer_copy.import_pages


def import_pages(
    source: PoolMemory, source_pages: npt.ArrayLike, target: PoolMemory, target_pages: npt.ArrayLike
) -> Future[None]:
    """On the borrower's copier thread, which nothing else waits for."""
    hold = Path(os.environ["RADIXD_HOLD"])
    while hold.exists():
        time.sleep(0.005)
    return _import(source, source_pages, target, target_pages)


if __name__ == "__main__":
    peer_copy.import_pages = import_pages
    sys.exit(main())
