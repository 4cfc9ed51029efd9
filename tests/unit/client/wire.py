"""A session's conversation on a wire that the test holds: replies are made by hand."""

from concurrent.futures import Future

import numpy as np

from radixd.client.batch import BatchBuilder
from radixd.client.exchange import Exchange
from radixd.client.lease import LeaseState
from radixd.client.results import Limits, Liveness, OpenedSession
from radixd.v1 import cache_pb2

LIMITS = Limits(
    message_bytes=10_000,
    tokens=10_000,
    operations=8,
    leases=8,
    namespace_bytes=64,
    client_name_bytes=64,
    move_pairs=16,
    replay_batches=4,
    replay_bytes=10_000,
)
OPENED = OpenedSession(
    session_id=3,
    secret=b"s" * 16,
    epoch=99,
    generation=1,
    pool="p",
    speculative="none",
    dedup="patch",
    page_size=4,
    total_pages=100,
    geometry_fingerprint=b"g" * 16,
    attach_socket="",
    limits=LIMITS,
    liveness=Liveness(5, 10, 30),
    server_version="0",
    contract_revision=1,
    capabilities=frozenset(),
)


class Wire:
    """An exchange, the Batches that it sent, and a daemon's side played by the test."""

    def __init__(self):
        self.exchange = Exchange(OPENED, LeaseState)
        self.sent = []

    def batch(self):
        return BatchBuilder(self.exchange)

    def send(self, batch=None):
        future = Future()
        self.exchange.pause()
        self.sent.append(self.exchange.submit(self.batch() if batch is None else batch, future))
        return future

    def call(self, index=-1):
        return cache_pb2.Batch.FromString(self.sent[index]).call

    def answer(self, seq, *results, **news):
        results = [cache_pb2.OperationResult(**result) for result in results]
        self.exchange.receive(cache_pb2.BatchReply(seq=seq, epoch=99, generation=1, results=results, **news))

    def lease(self, lease_id=5, tokens=8, pages=(1, 2)):
        batch = self.batch()
        opened = batch.acquire(range(tokens))
        self.send(batch)
        told = cache_pb2.AcquireResult(lease_id=lease_id, pages=np.array(pages, "<i4").tobytes())
        self.answer(self.call().seq, {"acquire": told})
        return opened.result()


def ids(*values):
    """Packed page ids."""
    return np.array(values, "<i4").tobytes()


def patch(first_page, *pages):
    """A TablePatch."""
    return cache_pb2.TablePatch(first_page=first_page, pages=ids(*pages))
