"""The asyncio client: for schedulers whose loop is a coroutine. Same words, same state, awaited.

Everything of a session runs on the loop that opened it. gRPC does not survive a fork: open clients after forking, and
let workers attach with a ticket.
"""

from radixd.client.aio.batch import AsyncBatch
from radixd.client.aio.client import AsyncClient
from radixd.client.aio.lease import AsyncLease
from radixd.client.aio.session import AsyncSession

__all__ = ["AsyncBatch", "AsyncClient", "AsyncLease", "AsyncSession"]
