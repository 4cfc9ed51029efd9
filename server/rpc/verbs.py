"""Each verb of the hot path: checks its message, asks the cache, writes the result. All or nothing, and synchronous."""

import math
from dataclasses import dataclass, field
from typing import TypedDict

import numpy as np

from radixd.server.cache.prefix_cache import PrefixCache
from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.cache.results import AcquireResult, PageIds
from radixd.server.rpc.convert import SPECULATIVE, bad_field, namespace, patches
from radixd.server.sessions.fault import fault
from radixd.server.sessions.limits import check_limit
from radixd.server.sessions.served_session import ServedSession
from radixd.v1 import cache_pb2

DEFAULT_PRIORITY = 50
MAX_PRIORITY = 100
TOKEN_BYTES = 4
SLOT_BYTES = 4

LATER = "a waiting lease holds no pages: say it in the Acquire that activates the lease"

FAILED = 0
"""Stands in `Scope.opened` for an Acquire that was refused; no lease has this id."""


@dataclass(slots=True)
class Scope:
    """What the operations of one Batch share: their session, and the leases that earlier ones have opened."""

    session: ServedSession
    cache: PrefixCache
    opened: list[int | None] = field(default_factory=list)
    """Lease ids by operation; FAILED for an Acquire that was refused, None for another verb."""

    def lease_id(self, ref: cache_pb2.LeaseRef) -> int:
        """The lease that a reference names. Refuses: BAD_FIELD, DEPENDENCY_FAILED."""
        kind = ref.WhichOneof("lease")
        if kind == "id":
            return ref.id
        if kind is None:
            raise bad_field("lease", "set `id`, or `opened_by` with the index of an earlier Acquire of the same Batch")
        index = ref.opened_by
        lease_id = self.opened[index] if index < len(self.opened) else None
        if lease_id is None:
            raise bad_field("lease.opened_by", f"operation {index} is no earlier Acquire of the same Batch")
        if lease_id == FAILED:
            message = f"operation {index} was to open the lease, and did not: see its status"
            raise Refusal(Reason.DEPENDENCY_FAILED, message, facts={"operation": index})
        return lease_id

    def tokens(self, tokens: bytes) -> bytes:
        """The same tokens, no more than one lease may know."""
        check_limit("tokens", len(tokens) // TOKEN_BYTES, self.session.limits.tokens, "tokens")
        return tokens


def match(scope: Scope, message: cache_pb2.Match, result: cache_pb2.MatchResult) -> None:
    """Match, by tokens or by lease."""
    session = scope.session
    max_tokens = message.max_tokens if message.HasField("max_tokens") else None
    if message.HasField("lease"):
        if message.HasField("namespace") or message.tokens:
            raise bad_field("lease", "a lease has its namespace and tokens already: send either `lease` or those two")
        lease_id = scope.lease_id(message.lease)
        found = scope.cache.match_lease(
            session.id, lease_id, max_tokens=max_tokens, peek=message.peek, peers=message.peers
        )
    else:
        within = namespace(message, session)
        tokens = scope.tokens(message.tokens)
        found = scope.cache.match(
            session.id, within, tokens, max_tokens=max_tokens, peek=message.peek, peers=message.peers
        )
    result.device_tokens = found.device_tokens
    result.host_tokens = found.host_tokens
    result.unlocked_pages = found.unlocked_pages
    result.speculative = SPECULATIVE[session.pool.speculative]
    result.rollback_tokens = found.rollback_tokens
    result.peer_tokens = found.peer_tokens
    result.peer_pool = found.peer


def acquire(scope: Scope, message: cache_pb2.Acquire, result: cache_pb2.AcquireResult) -> None:
    """Acquire: opens a lease, active or waiting, or activates a waiting one."""
    if message.lease_id:
        acquired = _activate(scope, message)
    elif message.wait:
        result.lease_id = _wait(scope, message)
        result.speculative = SPECULATIVE[scope.session.pool.speculative]
        return
    else:
        acquired = _open(scope, message)
    result.lease_id = acquired.lease_id
    result.device_tokens = acquired.device_tokens
    result.host_tokens = acquired.host_tokens
    result.peer_tokens = acquired.peer_tokens
    result.loading.extend(acquired.loading)
    result.speculative = SPECULATIVE[scope.session.pool.speculative]
    result.rollback_tokens = acquired.rollback_tokens
    result.allocated = len(acquired.pages) * scope.cache.config.page_size
    result.pages = acquired.pages.tobytes()


class Lengths(TypedDict):
    """The lengths of an Acquire, each None where unset."""

    max_tokens: int | None
    allocate_to: int | None
    reserve_to: int | None


def _lengths(message: cache_pb2.Acquire) -> Lengths:
    return {
        "max_tokens": message.max_tokens if message.HasField("max_tokens") else None,
        "allocate_to": message.allocate_to if message.HasField("allocate_to") else None,
        "reserve_to": message.reserve_to if message.HasField("reserve_to") else None,
    }


def _activate(scope: Scope, message: cache_pb2.Acquire) -> AcquireResult:
    given = [name for name in ("namespace", "priority", "retain_seconds") if message.HasField(name)]
    if message.tokens or message.wait or given:
        text = "a waiting lease has its namespace, tokens, priority and retention already: leave them and `wait` unset"
        raise bad_field("lease_id", text)
    return scope.cache.activate(
        scope.session.id, message.lease_id, **_lengths(message), import_from_peers=message.import_from_peers
    )


def _wait(scope: Scope, message: cache_pb2.Acquire) -> int:
    for name in ("max_tokens", "allocate_to", "reserve_to"):
        if message.HasField(name):
            raise bad_field(name, LATER)
    if message.import_from_peers:
        raise bad_field("import_from_peers", LATER)
    session = scope.session
    return scope.cache.wait(
        session.id,
        namespace(message, session),
        scope.tokens(message.tokens),
        priority=_priority(message),
        retain_seconds=_retain_seconds(message),
    )


def _open(scope: Scope, message: cache_pb2.Acquire) -> AcquireResult:
    session = scope.session
    return scope.cache.acquire(
        session.id,
        namespace(message, session),
        scope.tokens(message.tokens),
        **_lengths(message),
        priority=_priority(message),
        retain_seconds=_retain_seconds(message),
        import_from_peers=message.import_from_peers,
    )


def _priority(message: cache_pb2.Acquire) -> int:
    if not message.HasField("priority"):
        return DEFAULT_PRIORITY
    if message.priority > MAX_PRIORITY:
        raise bad_field(
            "priority", f"{message.priority} is outside 0 to {MAX_PRIORITY}; unset means {DEFAULT_PRIORITY}"
        )
    return message.priority


def _retain_seconds(message: cache_pb2.Acquire) -> float | None:
    if not message.HasField("retain_seconds"):
        return None
    seconds = message.retain_seconds
    if not (math.isfinite(seconds) and seconds > 0):
        raise bad_field("retain_seconds", f"{seconds} is no finite number above 0; unset means for ever")
    return seconds


def allocate(scope: Scope, message: cache_pb2.Allocate, result: cache_pb2.AllocateResult) -> None:
    """Allocate: grows the page table."""
    lease_id = scope.lease_id(message.lease)
    tokens = scope.tokens(message.tokens)
    grown = scope.cache.allocate(scope.session.id, lease_id, message.allocate_to, tokens)
    result.allocated = grown.allocated
    result.pages = grown.pages.tobytes()


def insert(scope: Scope, message: cache_pb2.Insert, result: cache_pb2.InsertResult) -> None:
    """Insert: publishes whole pages."""
    lease_id = scope.lease_id(message.lease)
    tokens = scope.tokens(message.tokens)
    inserted = scope.cache.insert(
        scope.session.id, lease_id, message.written, after_step=message.after_step, tokens=tokens
    )
    result.published = inserted.published
    result.pending = inserted.pending
    result.patches.extend(patches(inserted.patches))


def free(scope: Scope, message: cache_pb2.Free, result: cache_pb2.FreeResult) -> None:
    """Free: gives up the table's tail."""
    freed = scope.cache.free(scope.session.id, scope.lease_id(message.lease), message.from_length)
    result.allocated = freed.allocated
    result.freed_pages = freed.freed_pages


def release(scope: Scope, message: cache_pb2.Release, result: cache_pb2.ReleaseResult) -> None:
    """Release: ends the lease, or returns it to waiting."""
    lease_id = scope.lease_id(message.lease)
    released = scope.cache.release(
        scope.session.id,
        lease_id,
        publish_to=message.publish_to,
        after_step=message.after_step,
        keep=message.keep,
        tokens=scope.tokens(message.tokens),
    )
    result.published = released.published
    result.freed_pages = released.freed_pages


def move(scope: Scope, message: cache_pb2.Move, result: cache_pb2.MoveResult) -> None:
    """Move: plans a copy and starts it. What becomes of the copy is told in a later reply."""
    lease_id = scope.lease_id(message.lease)
    sources = _slots("sources", message.sources, scope.session.limits.move_pairs)
    destinations = _slots("destinations", message.destinations, scope.session.limits.move_pairs)
    plan = scope.cache.move(scope.session.id, lease_id, sources, destinations)
    pool, cache = scope.session.pool, scope.cache

    def finish(error: str) -> None:
        try:
            cache.finish_copy(plan.copy_id, error)
        except Exception as problem:
            fault(pool, problem, "finishing a copy")
        pool.turn()

    result.copy_id = plan.copy_id
    try:
        pool.run_move(plan, finish)
    except Exception as problem:  # the plan stands: its pages stay pinned until somebody says how the copy ended
        finish(f"it could not be started: {problem}")


def offload(scope: Scope, message: cache_pb2.Offload, result: cache_pb2.OffloadResult) -> None:
    """Offload: reserves host pages. Its end is told in a later reply."""
    result.host_pages = scope.cache.offload(scope.session.id, scope.lease_id(message.lease))


def restore(scope: Scope, message: cache_pb2.Restore, result: cache_pb2.RestoreResult) -> None:
    """Restore: locks and allocates. The copies' ends are told in later replies."""
    restored = scope.cache.restore(
        scope.session.id,
        message.lease_id,
        allocate_to=message.allocate_to if message.HasField("allocate_to") else None,
        reserve_to=message.reserve_to if message.HasField("reserve_to") else None,
    )
    result.readable = restored.device_tokens
    result.loading.extend(restored.loading)
    result.allocated = len(restored.pages) * scope.cache.config.page_size
    result.pages = restored.pages.tobytes()


def _slots(name: str, slots: bytes, limit: int) -> PageIds:
    if len(slots) % SLOT_BYTES:
        raise bad_field(name, f"{len(slots)} bytes are no whole number of little-endian int32 slot ids")
    check_limit(name, len(slots) // SLOT_BYTES, limit, "slots")
    return np.frombuffer(slots, dtype="<i4")
