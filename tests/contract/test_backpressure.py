"""A client that does not read its replies is not read; the others run on."""

from __future__ import annotations

import asyncio

from radixd.v1 import cache_pb2 as pb
from tests.contract.caller import Caller, Stream, ref
from tests.contract.service import LIMITS, Service
from tests.sequences import seq

BATCHES = 80
ROUNDS = 25


async def test_a_client_that_reads_no_replies_is_not_read(service: Service, caller: Caller, other: Caller) -> None:
    # Refusals make replies many times as large as their Batch: more than the transport holds.
    verbs = [pb.Free(lease=ref(10**6))] * LIMITS.operations
    batches = [caller.batch(*verbs, seq=number) for number in range(1, BATCHES + 1)]
    writing = asyncio.create_task(write_all(caller.connect(), batches))
    session = service.registry.find(caller.id, caller.opened.secret, caller.opened.epoch)

    answered = 0
    while answered != session.replies.next_seq or session.running is not None:
        answered = session.replies.next_seq
        for _ in range(ROUNDS):
            await other.say(pb.Match(tokens=seq("A")))
    assert answered < BATCHES

    for number in range(1, BATCHES + 1):
        assert len((await caller.read(number)).results) == LIMITS.operations
    await writing
    assert session.replies.next_seq == BATCHES + 1


async def write_all(stream: Stream, batches: list[pb.Batch]) -> None:
    for batch in batches:
        await stream.write(batch)
