"""A daemon: copies to the host wait while the file $HOLD_COPIES is there, and Snapshots while $HOLD_SNAPSHOTS is."""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import numpy.typing as npt

from radixd.gpu_pool import tier_copy
from radixd.gpu_pool.host import HostPool
from radixd.gpu_pool.memory import PoolMemory
from radixd.server.cli import main
from radixd.server.rpc.admin_service import AdminService
from radixd.v1 import admin_pb2

COPIES, SNAPSHOTS = "HOLD_COPIES", "HOLD_SNAPSHOTS"
HELD = "holding a Snapshot"

_save: Callable[..., Future[None]] = tier_copy.save_pages
_snapshot = AdminService.snapshot


def held(name: str) -> bool:
    return name in os.environ and Path(os.environ[name]).exists()


def save_pages(
    memory: PoolMemory, host: HostPool, device_pages: npt.ArrayLike, host_pages: npt.ArrayLike
) -> Future[None]:
    while held(COPIES):
        time.sleep(0.02)
    return _save(memory, host, device_pages, host_pages)


async def snapshot(self: AdminService, request: admin_pb2.SnapshotRequest) -> admin_pb2.SnapshotResponse:
    if held(SNAPSHOTS):
        print(HELD, file=sys.stderr, flush=True)
    while held(SNAPSHOTS):  # noqa: ASYNC110 (another process ends it)
        await asyncio.sleep(0.02)
    return await _snapshot(self, request)


if __name__ == "__main__":
    tier_copy.save_pages = save_pages
    AdminService.snapshot = snapshot
    sys.exit(main())
