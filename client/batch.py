"""Builds a Batch: any number of operations in order, each with a result of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import numpy.typing as npt

from radixd.client import convert
from radixd.client.arguments import count, count_or_none, octets, seconds_or_none
from radixd.client.lease import LeaseState, Standing
from radixd.client.operation import Operation
from radixd.client.results import InsertResult, MatchResult, ReleaseResult
from radixd.client.tokens import TOKEN_BYTES, Pages, Tokens, id_bytes, page_ids, token_bytes
from radixd.v1 import cache_pb2, types_pb2

T = TypeVar("T")
L = TypeVar("L", bound=LeaseState)
L_co = TypeVar("L_co", bound=LeaseState, covariant=True)

Answer = cache_pb2.OperationResult

MOST_PRIORITY = 100
MOST_GROUP = 2**32 - 1


class Scope(Protocol[L_co]):
    """The session that a Batch is built for."""

    standing: Standing
    launched: int

    def new_lease(self) -> L_co:
        """A lease that nobody has answered yet."""


class BatchBuilder(Generic[L]):
    """The contract's verbs. Each appends an operation; nothing else changes until the Batch's reply comes.

    A lease is given as itself, or as the Operation of this Batch that opens it. Arguments that many verbs share:
        tokens: see `radixd.client.tokens.Tokens`.
        after_step: the step that writes what is to be published; None: the last one launched, which is always safe.

    Raises BadField, a ValueError, for an argument that no field of the contract can hold, and ValueError or TypeError
    for what is no tokens or ids; the Batch is then as it was.
    """

    def __init__(self, scope: Scope[L]) -> None:
        self._scope = scope
        self.sent = False
        self.message = cache_pb2.Batch()
        self.operations: list[Operation[object]] = []
        self.opening: list[Operation[L]] = []
        """Those that open a lease, until the Batch is abandoned."""

    def __len__(self) -> int:
        return len(self.operations)

    def group(self, number: int, *operations: Operation[object]) -> None:
        """Let operations of this Batch stand in line: after the first NO_PAGES the rest of the group is SKIPPED.

        Operations of no group (0) are independent.
        """
        number = count("group", number, MOST_GROUP)
        for operation in operations:
            if operation not in self.operations[operation.index : operation.index + 1]:
                raise ValueError("only operations of this Batch may stand in line here")
            self.message.operations[operation.index].group = number

    def match(
        self,
        tokens: Tokens,
        *,
        extra_key: bytes = b"",
        cache_salt: bytes = b"",
        max_tokens: int | None = None,
        peek: bool = False,
        peers: bool = False,
    ) -> Operation[MatchResult]:
        """The longest cached prefix of `tokens`, at most `max_tokens` (None: all but one).

        `peek` keeps recency; `peers` asks the daemon's other pools for more.
        """
        packed = token_bytes(tokens)
        verb = cache_pb2.Match(
            namespace=_namespace(extra_key, cache_salt),
            max_tokens=count_or_none("max_tokens", max_tokens),
            peek=peek,
            peers=peers,
        )
        self.message.operations.add(match=verb).match.tokens = packed
        return self._add(lambda answer: convert.match_result(answer.match))

    def match_lease(
        self, lease: L | Operation[L], *, max_tokens: int | None = None, peek: bool = False, peers: bool = False
    ) -> Operation[MatchResult]:
        """As `match`, of a lease's tokens: the daemon has them already."""
        most = count_or_none("max_tokens", max_tokens)
        verb = cache_pb2.Match(lease=self._refer(lease), max_tokens=most, peek=peek, peers=peers)
        self.message.operations.add(match=verb)
        return self._add(lambda answer: convert.match_result(answer.match))

    def acquire(
        self,
        tokens: Tokens,
        *,
        extra_key: bytes = b"",
        cache_salt: bytes = b"",
        max_tokens: int | None = None,
        allocate_to: int | None = None,
        reserve_to: int | None = None,
        priority: int | None = None,
        retain_seconds: float | None = None,
        import_from_peers: bool = False,
    ) -> Operation[L]:
        """Open a lease: match, lock the match, allocate and reserve, all or nothing.

        Args:
            max_tokens: the most that may be matched. None: all but one, which is left to compute.
            allocate_to: slots wanted now, as a length. None: all of `tokens`.
            reserve_to: the length that the lease is sure to need in the end. None: `allocate_to`.
            priority: of the pages it publishes, 0 (evicted first) to 100. None: 50.
            retain_seconds: how long after its last hit the priority holds. None: for ever.
            import_from_peers: where another pool of the daemon holds more of it, copy that: `loading` until it is here.
        """
        packed = token_bytes(tokens)
        verb = cache_pb2.Acquire(
            namespace=_namespace(extra_key, cache_salt),
            max_tokens=count_or_none("max_tokens", max_tokens),
            allocate_to=count_or_none("allocate_to", allocate_to),
            reserve_to=count_or_none("reserve_to", reserve_to),
            priority=count_or_none("priority", priority, MOST_PRIORITY),
            retain_seconds=seconds_or_none("retain_seconds", retain_seconds),
            import_from_peers=import_from_peers,
        )
        return self._open(verb, packed, _activated)

    def wait(
        self,
        tokens: Tokens,
        *,
        extra_key: bytes = b"",
        cache_salt: bytes = b"",
        priority: int | None = None,
        retain_seconds: float | None = None,
    ) -> Operation[L]:
        """Open a lease with its tokens alone, so that they travel once: `match_lease` and `activate` it later."""
        packed = token_bytes(tokens)
        verb = cache_pb2.Acquire(
            namespace=_namespace(extra_key, cache_salt),
            wait=True,
            priority=count_or_none("priority", priority, MOST_PRIORITY),
            retain_seconds=seconds_or_none("retain_seconds", retain_seconds),
        )
        return self._open(verb, packed, lambda lease, _: lease)

    def activate(
        self,
        lease: L,
        *,
        max_tokens: int | None = None,
        allocate_to: int | None = None,
        reserve_to: int | None = None,
        import_from_peers: bool = False,
    ) -> Operation[L]:
        """Acquire with the tokens of a waiting lease; arguments as there."""
        self._check(lease)
        verb = cache_pb2.Acquire(
            lease_id=lease.lease_id,
            max_tokens=count_or_none("max_tokens", max_tokens),
            allocate_to=count_or_none("allocate_to", allocate_to),
            reserve_to=count_or_none("reserve_to", reserve_to),
            import_from_peers=import_from_peers,
        )
        self.message.operations.add(acquire=verb)
        return self._add(lambda answer: _activated(lease, answer.acquire))

    def allocate(self, lease: L | Operation[L], allocate_to: int, tokens: Tokens = b"") -> Operation[Pages]:
        """Grow the table to `allocate_to` tokens and append known `tokens`: the pages that came, int32."""
        packed, reference, owner = token_bytes(tokens), self._refer(lease), _resolver(lease)
        verb = cache_pb2.Allocate(lease=reference, allocate_to=count("allocate_to", allocate_to))
        self.message.operations.add(allocate=verb).allocate.tokens = packed

        def grown(answer: Answer) -> Pages:
            pages = page_ids(answer.allocate.pages)
            owner().on_grown(pages, len(packed) // TOKEN_BYTES)
            return pages

        return self._add(grown)

    def insert(
        self,
        lease: L | Operation[L],
        written: int,
        *,
        after_step: int | None = None,
        tokens: Tokens = b"",
    ) -> Operation[InsertResult]:
        """Append known `tokens` and publish whole pages up to `written`, once `after_step` has completed.

        The process that wrote stays attached until then: one that leaves bars what the session has not published yet.
        """
        packed, reference, owner = token_bytes(tokens), self._refer(lease), _resolver(lease)
        verb = cache_pb2.Insert(lease=reference, written=count("written", written), after_step=self._step(after_step))
        self.message.operations.add(insert=verb).insert.tokens = packed

        def inserted(answer: Answer) -> InsertResult:
            told = answer.insert
            patches = [convert.table_patch(patch) for patch in told.patches]
            owner().on_inserted(written, len(packed) // TOKEN_BYTES, told.published, patches)
            return InsertResult(told.published, told.pending)

        return self._add(inserted)

    def free(self, lease: L | Operation[L], from_length: int) -> Operation[int]:
        """Give up the pages above `from_length` tokens: how many they were. Rejected drafts need no Free."""
        reference, owner = self._refer(lease), _resolver(lease)
        verb = cache_pb2.Free(lease=reference, from_length=count("from_length", from_length))
        self.message.operations.add(free=verb)

        def freed(answer: Answer) -> int:
            owner().on_freed(from_length, answer.free.allocated)
            return answer.free.freed_pages

        return self._add(freed)

    def release(
        self,
        lease: L | Operation[L],
        *,
        publish_to: int = 0,
        after_step: int | None = None,
        keep: bool = False,
        tokens: Tokens = b"",
    ) -> Operation[ReleaseResult]:
        """End the lease after publishing up to `publish_to` (0: nothing more); `keep` returns it to waiting instead."""
        packed, reference, owner = token_bytes(tokens), self._refer(lease), _resolver(lease)
        verb = cache_pb2.Release(
            lease=reference,
            publish_to=count("publish_to", publish_to),
            after_step=self._step(after_step),
            keep=keep,
        )
        self.message.operations.add(release=verb).release.tokens = packed

        def released(answer: Answer) -> ReleaseResult:
            if keep:
                owner().on_retracted(len(packed) // TOKEN_BYTES)
            else:
                owner().on_released()
            return ReleaseResult(answer.release.published, answer.release.freed_pages)

        return self._add(released)

    def move(self, lease: L | Operation[L], sources: npt.ArrayLike, destinations: npt.ArrayLike) -> Operation[int]:
        """Copy tokens between slots of the lease, as if all were read before any is written: the copy's id.

        The bytes are in place when a later reply names the id; until then `lease.copying`.
        """
        packed = id_bytes(sources, "sources"), id_bytes(destinations, "destinations")
        reference, owner = self._refer(lease), _resolver(lease)
        verb = self.message.operations.add().move
        verb.lease.CopyFrom(reference)
        verb.sources, verb.destinations = packed

        def started(answer: Answer) -> int:
            owner().on_copy_started(answer.move.copy_id)
            return answer.move.copy_id

        return self._add(started)

    def offload(self, lease: L | Operation[L]) -> Operation[int]:
        """Preempt an active lease: save its known tokens to the host, then give up its pages: how many are saved.

        Tell it first, by Insert or Allocate, what the engine has computed. The lease is `offloading` until a later
        reply's `saved` says that it is offloaded or, where the copy has failed, active as it was.
        """
        reference, owner = self._refer(lease), _resolver(lease)
        self.message.operations.add().offload.lease.CopyFrom(reference)

        def offloading(answer: Answer) -> int:
            owner().on_offloading()
            return answer.offload.host_pages

        return self._add(offloading)

    def restore(self, lease: L, *, allocate_to: int | None = None, reserve_to: int | None = None) -> Operation[L]:
        """Bring an offloaded lease back, to other pages perhaps; lengths as in `acquire`.

        It is `restoring` until `loading` is empty. Computing goes on at `readable`, which is less than was written
        where a copy has failed.
        """
        self._check(lease)
        verb = cache_pb2.Restore(
            lease_id=lease.lease_id,
            allocate_to=count_or_none("allocate_to", allocate_to),
            reserve_to=count_or_none("reserve_to", reserve_to),
        )
        self.message.operations.add(restore=verb)

        def restored(answer: Answer) -> L:
            told = answer.restore
            lease.on_restored(page_ids(told.pages), told.readable, frozenset(told.loading))
            return lease

        return self._add(restored)

    def _open(
        self, verb: cache_pb2.Acquire, packed: bytes, take: Callable[[L, cache_pb2.AcquireResult], L]
    ) -> Operation[L]:
        """An Acquire of packed tokens: a lease of its own, which `take` makes ready."""
        self.message.operations.add(acquire=verb).acquire.tokens = packed
        lease = self._scope.new_lease()

        def opened(answer: Answer) -> L:
            lease.on_opened(answer.acquire.lease_id, len(packed) // TOKEN_BYTES)
            return take(lease, answer.acquire)

        operation = self._add(opened)
        self.opening.append(operation)
        return operation

    def _step(self, after_step: int | None) -> int:
        return self._scope.launched if after_step is None else count("after_step", after_step)

    def _add(self, settle: Callable[[Answer], T]) -> Operation[T]:
        operation = Operation(len(self.operations), settle)
        self.operations.append(operation)
        return operation

    def _refer(self, lease: L | Operation[L]) -> cache_pb2.LeaseRef:
        """The lease's id or, for one that this Batch opens, the place of its Acquire."""
        if isinstance(lease, Operation):
            if not lease.done:
                if lease not in self.operations[lease.index : lease.index + 1]:
                    raise ValueError("the lease is opened by another Batch: wait for its reply, then use the lease")
                return cache_pb2.LeaseRef(opened_by=lease.index)
            lease = lease.result()
        self._check(lease)
        return cache_pb2.LeaseRef(id=lease.lease_id)

    def _check(self, lease: L) -> None:
        lease.check()
        if lease.standing is not self._scope.standing:
            raise ValueError(f"lease {lease.lease_id} belongs to another session")


def _resolver(lease: L | Operation[L]) -> Callable[[], L]:
    """The lease once the reply has come: an Acquire of the same Batch is settled before what refers to it."""
    if isinstance(lease, Operation):
        return lease.result
    return lambda: lease


def _namespace(extra_key: bytes, cache_salt: bytes) -> types_pb2.Namespace | None:
    extra_key, cache_salt = octets("extra_key", extra_key), octets("cache_salt", cache_salt)
    return types_pb2.Namespace(extra_key=extra_key, cache_salt=cache_salt) if extra_key or cache_salt else None


def _activated(lease: L, told: cache_pb2.AcquireResult) -> L:
    lease.on_activated(
        page_ids(told.pages),
        told.device_tokens,
        told.rollback_tokens,
        told.host_tokens,
        told.peer_tokens,
        frozenset(told.loading),
    )
    return lease
