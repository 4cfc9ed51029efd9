"""A lease whose verbs are awaited."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from radixd.client.aio.batch import AsyncBatch, lease_verb
from radixd.client.channel import COPY_POLL_SECONDS
from radixd.client.lease import LeaseState, LeaseStatus, Standing

if TYPE_CHECKING:
    from radixd.client.aio.session import AsyncSession


class AsyncLease(LeaseState):
    """One request. The verbs are Batches of one; see `AsyncBatch` for their arguments and for many at once."""

    def __init__(self, standing: Standing, session: AsyncSession) -> None:
        super().__init__(standing)
        self.session = session

    match = lease_verb(AsyncBatch.match_lease)
    activate = lease_verb(AsyncBatch.activate)
    allocate = lease_verb(AsyncBatch.allocate)
    insert = lease_verb(AsyncBatch.insert)
    free = lease_verb(AsyncBatch.free)
    release = lease_verb(AsyncBatch.release)
    move = lease_verb(AsyncBatch.move)
    offload = lease_verb(AsyncBatch.offload)
    restore = lease_verb(AsyncBatch.restore)

    async def wait_loaded(self) -> None:
        """As `Lease.wait_loaded`. Bound it with `asyncio.timeout`."""
        while self.loading:
            await asyncio.sleep(COPY_POLL_SECONDS)
            await self.session.keep_alive()

    async def wait_saved(self) -> None:
        """As `Lease.wait_saved`. Bound it with `asyncio.timeout`."""
        while self.status is LeaseStatus.OFFLOADING:
            await asyncio.sleep(COPY_POLL_SECONDS)
            await self.session.keep_alive()
