"""One Batch, or one unary verb, on its way through the cache."""

from collections import Counter
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Protocol

from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.rpc import verbs
from radixd.server.rpc.convert import (
    arrival,
    bad_field,
    fill_host_occupancy,
    fill_occupancy,
    finished_copy,
    publication,
    saved_lease,
)
from radixd.server.rpc.status import to_status
from radixd.server.rpc.verbs import FAILED, Scope
from radixd.server.sessions.fault import check_served, fault
from radixd.server.sessions.replies import Reply
from radixd.server.sessions.served_session import ServedSession
from radixd.v1 import cache_pb2

YIELD_SECONDS = 0.002
"""After this long the loop gets its turn; one operation never yields."""

GIVING_PAGES = ("acquire", "allocate", "insert")
"""Verbs whose results can be large."""


class Run(Protocol):
    """Operations that are carried out in order, some at a time."""

    @property
    def verbs(self) -> Counter[str]:
        """How many operations there are of each verb, done or not."""
        ...

    def proceed(self) -> bool:
        """Carries out operations for YIELD_SECONDS; True once none is left."""
        ...

    def reply(self, seq: int, epoch: int) -> Reply:
        """The answer, once none is left. Refuses with NO_SESSION where the session has ended meanwhile."""
        ...


class BatchRun:
    """The operations of a Batch; each is refused or carried out by itself."""

    def __init__(self, session: ServedSession, batch: cache_pb2.Batch):
        self._session = session
        self._scope = Scope(session, session.pool.cache)
        self._began = perf_counter()
        self._operations = batch.operations
        self._left: Iterator[cache_pb2.Operation] = iter(self._operations)
        self._reply = cache_pb2.BatchReply()
        self._short_groups: set[int] = set()
        self._room = session.limits.message_bytes // 2  # for results; the other half is for what else a reply tells

    @property
    def verbs(self) -> Counter[str]:
        return Counter(operation.WhichOneof("verb") or "unknown" for operation in self._operations)

    def proceed(self) -> bool:
        work, now = self._session.pool.work, perf_counter()
        until = now + YIELD_SECONDS
        for operation in self._left:
            verb, began = operation.WhichOneof("verb"), now
            refusal = self._carry_out(verb, operation, self._reply.results.add())
            now = perf_counter()
            work.operation(verb, refusal, now - began)
            if now > until:
                return False
        return True

    def reply(self, seq: int, epoch: int) -> bytes:
        fill_head(self._reply, self._session, seq, epoch)
        wire = self._reply.SerializeToString()
        self._session.pool.work.batch(len(self._reply.results), perf_counter() - self._began)
        return wire

    def _carry_out(
        self, verb: str | None, operation: cache_pb2.Operation, result: cache_pb2.OperationResult
    ) -> Refusal | None:
        group = operation.group
        if group in self._short_groups:
            message = f"an earlier operation of group {group} met NO_PAGES; send this one again with the next Batch"
            refusal: Refusal | None = Refusal(Reason.SKIPPED, message)
        elif self._room <= 0 and verb in GIVING_PAGES:
            limit = self._session.limits.message_bytes
            message = f"operations: the reply has half of {limit} bytes already; send the others in the next Batch"
            refusal = Refusal(Reason.LIMIT_EXCEEDED, message, field="operations", facts={"limit": limit})
        else:
            refusal = attempt(self._session, lambda: _perform(self._scope, verb, operation, result))
        if refusal is not None:
            if refusal.reason is Reason.NO_PAGES and group:
                self._short_groups.add(group)
            result.status.CopyFrom(to_status(refusal))
        self._room -= result.ByteSize()
        opened = None
        if verb == "acquire":
            opened = result.acquire.lease_id if refusal is None else FAILED
        self._scope.opened.append(opened)
        return refusal


class VerbResponse(Protocol):
    """The response message of a unary verb."""

    @property
    def reply(self) -> cache_pb2.BatchReply: ...

    def SerializeToString(self) -> bytes: ...


class VerbRun:
    """A unary call: one operation, whose refusal is the whole answer."""

    def __init__(self, session: ServedSession, response: VerbResponse, name: str, verb: Callable[[Scope], None]):
        self._session = session
        self._response = response
        self._name = name
        self._verb = verb
        self._refusal: Refusal | None = None

    @property
    def verbs(self) -> Counter[str]:
        return Counter((self._name,))

    def proceed(self) -> bool:
        began = perf_counter()
        scope = Scope(self._session, self._session.pool.cache)
        self._refusal = attempt(self._session, lambda: self._verb(scope))
        self._session.pool.work.operation(self._name, self._refusal, perf_counter() - began)
        return True

    def reply(self, seq: int, epoch: int) -> Reply:
        if self._refusal is not None:
            return self._refusal
        fill_head(self._response.reply, self._session, seq, epoch)
        return self._response.SerializeToString()


def attempt(session: ServedSession, operation: Callable[[], None]) -> Refusal | None:
    """Carries one operation out. Returns why not, where it was not."""
    try:
        check_served(session.pool)
        operation()
    except Refusal as refusal:
        return refusal.with_traceback(None)  # it may be kept for long, and the request in its frames is large
    except Exception as error:
        return fault(session.pool, error, "an operation")
    return None


def _perform(scope: Scope, verb: str | None, operation: cache_pb2.Operation, result: cache_pb2.OperationResult) -> None:
    match verb:
        case "match":
            verbs.match(scope, operation.match, result.match)
        case "acquire":
            verbs.acquire(scope, operation.acquire, result.acquire)
        case "allocate":
            verbs.allocate(scope, operation.allocate, result.allocate)
        case "insert":
            verbs.insert(scope, operation.insert, result.insert)
            result.insert.SetInParent()  # a result of zeros alone would be no result
        case "free":
            verbs.free(scope, operation.free, result.free)
            result.free.SetInParent()
        case "release":
            verbs.release(scope, operation.release, result.release)
            result.release.SetInParent()
        case "move":
            verbs.move(scope, operation.move, result.move)
        case "offload":
            verbs.offload(scope, operation.offload, result.offload)
            result.offload.SetInParent()
        case "restore":
            verbs.restore(scope, operation.restore, result.restore)
            result.restore.SetInParent()
        case None:
            raise bad_field("verb", "the operation names none that this daemon knows; see OpenSession's capabilities")


def fill_head(reply: cache_pb2.BatchReply, session: ServedSession, seq: int, epoch: int) -> None:
    """Writes what every reply carries: the pool as it is now, and what has ended since the last one."""
    cache = session.pool.cache
    reply.seq = seq
    reply.epoch = epoch
    reply.generation = cache.generation
    fill_occupancy(reply.device, cache.occupancy(session.id))
    for published in cache.take_publications(session.id):
        reply.publications.append(publication(published))
    for finished in cache.take_finished_copies(session.id):
        reply.finished_copies.append(finished_copy(finished))
    for arrived in cache.take_arrivals(session.id):
        reply.arrivals.append(arrival(arrived))
    if cache.config.host_pages:
        fill_host_occupancy(reply.host, cache.host_occupancy())
        reply.saved.extend(map(saved_lease, cache.take_saved(session.id)))
