"""The Batch of a decode step: each running request's new token, and the slots for the next ones."""

from typing import Self

from bench.scheduler import Scheduler
from bench.workload import leaf_tokens
from radixd.v1 import cache_pb2 as pb

PROMPT_TOKENS = 1_024
TOKEN = (7).to_bytes(4, "little")
AHEAD = 2  # slots beyond the new token, twice the tokens of a step


class DecodeBatch:
    """One Allocate for each of some leases; `next` makes it the following step's."""

    def __init__(self, leases: list[int]) -> None:
        self._length = PROMPT_TOKENS
        self.message = pb.Batch()
        for lease in leases:
            allocate = pb.Allocate(lease=pb.LeaseRef(id=lease), tokens=TOKEN)
            self.message.operations.append(pb.Operation(allocate=allocate))
        self.next()

    @classmethod
    async def open(cls, scheduler: Scheduler, requests: int, number: int) -> Self:
        """Opens leases with prompts of their own, from the `number`-th leaf of the workload on."""
        prompts = (leaf_tokens(number + index, PROMPT_TOKENS).tobytes() for index in range(requests))
        reply = await scheduler.ask(*(pb.Operation(acquire=pb.Acquire(tokens=tokens)) for tokens in prompts))
        return cls([result.acquire.lease_id for result in reply.results])

    def next(self) -> None:
        """Every request has made a token."""
        self._length += 1
        for operation in self.message.operations:
            operation.allocate.allocate_to = self._length + AHEAD
