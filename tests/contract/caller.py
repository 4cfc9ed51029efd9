"""A client that says exactly what a test wants it to say."""

from __future__ import annotations

from itertools import count
from typing import Never, Self, TypeAlias

import grpc
from google.protobuf.message import Message

from radixd.v1 import cache_pb2 as pb
from radixd.v1 import session_pb2
from tests.contract.service import Service

MODEL = b"model-1"
NONCES = count(1)

Stream: TypeAlias = "grpc.aio.StreamStreamCall[pb.Batch, pb.BatchReply]"


def opening(**fields: object) -> session_pb2.OpenSessionRequest:
    """A valid OpenSession with another nonce each time, but for `fields`."""
    request = {"nonce": next(NONCES).to_bytes(16), "model": MODEL, "client_name": "tester", **fields}
    return session_pb2.OpenSessionRequest(**request)


class Caller:
    """One session: counts its seq and steps, and holds at most one stream."""

    def __init__(self, service: Service, opened: session_pb2.OpenSessionResponse) -> None:
        self.service = service
        self.opened = opened
        self.id = opened.session_id
        self.seq = self.ack = self.launched = self.completed = 0
        self.stream: Stream | None = None
        self._arrivals: list[pb.Arrival] = []
        self._saved: list[pb.SavedLease] = []

    @classmethod
    async def open(cls, service: Service, **fields: object) -> Self:
        return cls(service, await service.sessions.OpenSession(opening(**fields)))

    def identity(self, **fields: object) -> dict[str, object]:
        """What proves whose a call is."""
        return {"session_id": self.id, "secret": self.opened.secret, "epoch": self.opened.epoch, **fields}

    def call(self, **fields: object) -> pb.Call:
        """The next call, unless `fields` says otherwise."""
        steps = {"seq": self.seq + 1, "ack": self.ack, "launched": self.launched, "completed": self.completed}
        return pb.Call(**self.identity(**{**steps, **fields}))

    def batch(self, *verbs: Message | pb.Operation, **fields: object) -> pb.Batch:
        """The next Batch."""
        return pb.Batch(call=self.call(**fields), operations=map(operation, verbs))

    def connect(self) -> Stream:
        """Opens a stream, beside an older one if there is one."""
        self.stream = self.service.cache.Schedule()
        return self.stream

    async def exchange(self, batch: pb.Batch) -> pb.BatchReply:
        """Sends a Batch on the open stream and reads its reply."""
        stream = self.stream or self.connect()
        await stream.write(batch)
        return await self.read(batch.call.seq)

    async def read(self, seq: int) -> pb.BatchReply:
        """The next reply on the open stream, which must be to `seq`."""
        assert self.stream is not None
        reply = await self.stream.read()
        if reply is grpc.aio.EOF:
            await end_of(self.stream)
        assert (reply.seq, reply.epoch) == (seq, self.opened.epoch)
        self.seq = max(self.seq, seq)
        self._arrivals.extend(reply.arrivals)
        self._saved.extend(reply.saved)
        return reply

    async def say(self, *verbs: Message | pb.Operation, **fields: object) -> pb.BatchReply:
        """The next Batch, all of whose operations must succeed."""
        reply = await self.exchange(self.batch(*verbs, **fields))
        for result in reply.results:
            assert not result.HasField("status"), result.status.message
        return reply

    async def acquire(self, tokens: bytes, **fields: object) -> pb.AcquireResult:
        """An active lease on `tokens`."""
        reply = await self.say(pb.Acquire(tokens=tokens, **fields))
        return reply.results[0].acquire

    async def publish(self, tokens: bytes) -> int:
        """Puts the whole pages of `tokens` into the tree, under no lock. Returns the lease's id, which is void."""
        lease = (await self.acquire(tokens)).lease_id
        await self.say(pb.Release(lease=ref(lease), publish_to=len(tokens) // 4))
        return lease

    async def told_arrivals(self) -> list[pb.Arrival]:
        """What replies have told of arrivals since the last call, once one has: the reply that names a copy may."""
        while not self._arrivals:
            await self.say()
        told, self._arrivals = self._arrivals, []
        return told

    async def told_saved(self) -> pb.SavedLease:
        """The one lease whose end of saving replies have told since the last call, once one has."""
        while not self._saved:
            await self.say()
        (told,) = self._saved
        self._saved = []
        return told

    async def close(self, **fields: object) -> int:
        """CloseSession; returns pages left retired."""
        request = session_pb2.CloseSessionRequest(**self.identity(completed=self.completed, **fields))
        return (await self.service.sessions.CloseSession(request)).retired_pages


async def end_of(stream: Stream) -> Never:
    """Waits until the server has ended the stream, and raises what it ended with."""
    code, details = await stream.code(), await stream.details()
    raise grpc.aio.AioRpcError(code, await stream.initial_metadata(), await stream.trailing_metadata(), details)


def ref(lease_id: int) -> pb.LeaseRef:
    return pb.LeaseRef(id=lease_id)


def opened_by(index: int) -> pb.LeaseRef:
    return pb.LeaseRef(opened_by=index)


def operation(verb: Message | pb.Operation, group: int = 0) -> pb.Operation:
    """A verb's message as an operation of a Batch."""
    if isinstance(verb, pb.Operation):
        return verb
    return pb.Operation(group=group, **{type(verb).__name__.lower(): verb})
