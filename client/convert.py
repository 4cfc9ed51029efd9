"""Between the contract's messages and the client's plain data: the only place that knows both."""

from collections.abc import Mapping
from typing import Literal

from radixd.client.errors import Refused, from_status
from radixd.client.results import (
    Arrival,
    FinishedCopy,
    HostOccupancy,
    Limits,
    Liveness,
    MatchResult,
    Occupancy,
    OpenedSession,
    Publication,
    Reply,
    SavedLease,
    TablePatch,
)
from radixd.client.tokens import page_ids
from radixd.v1 import cache_pb2, session_pb2, types_pb2

Speculative = Literal["none", "bigram", "drop_last_page"]
Dedup = Literal["keep", "patch"]

SPECULATIVE: "Mapping[str, types_pb2.SpeculativeMode.ValueType]" = {
    "none": types_pb2.SPECULATIVE_MODE_NONE,
    "bigram": types_pb2.SPECULATIVE_MODE_BIGRAM,
    "drop_last_page": types_pb2.SPECULATIVE_MODE_DROP_LAST_PAGE,
}
DEDUP: "Mapping[str, types_pb2.Dedup.ValueType]" = {"keep": types_pb2.DEDUP_KEEP, "patch": types_pb2.DEDUP_PATCH}

_SPECULATIVE_NAMES = {value: name for name, value in SPECULATIVE.items()}
_DEDUP_NAMES = {value: name for name, value in DEDUP.items()}


def speculative_name(mode: "types_pb2.SpeculativeMode.ValueType") -> str:
    """The mode's name; one that this version does not know is called "unknown"."""
    return _SPECULATIVE_NAMES.get(mode, "unknown")


def dedup_name(dedup: "types_pb2.Dedup.ValueType") -> str:
    """The dedup's name; one that this version does not know is called "unknown"."""
    return _DEDUP_NAMES.get(dedup, "unknown")


def match_result(message: cache_pb2.MatchResult) -> MatchResult:
    """Lengths in tokens, `unlocked_pages` in pages."""
    return MatchResult(
        device_tokens=message.device_tokens,
        host_tokens=message.host_tokens,
        unlocked_pages=message.unlocked_pages,
        speculative=speculative_name(message.speculative),
        rollback_tokens=message.rollback_tokens,
        peer_tokens=message.peer_tokens,
        peer_pool=message.peer_pool,
    )


def table_patch(message: cache_pb2.TablePatch) -> TablePatch:
    """`pages` shares the message's memory."""
    return TablePatch(message.first_page, page_ids(message.pages))


def publication(message: cache_pb2.Publication) -> Publication:
    """Without its patches: those belong to the lease."""
    return Publication(message.lease_id, message.published)


def finished_copy(message: cache_pb2.FinishedCopy) -> FinishedCopy:
    """An unset status says that the bytes are in place."""
    return FinishedCopy(message.copy_id, _error(message))


def arrival(message: cache_pb2.Arrival) -> Arrival:
    """Without its patches: those belong to the lease."""
    return Arrival(message.lease_id, message.copy_id, message.readable, _error(message))


def saved_lease(message: cache_pb2.SavedLease) -> SavedLease:
    """An unset status says that the lease is offloaded."""
    return SavedLease(message.lease_id, _error(message))


def _error(message: cache_pb2.FinishedCopy | cache_pb2.Arrival | cache_pb2.SavedLease) -> Refused | None:
    return from_status(message.status) if message.HasField("status") else None


def host_occupancy(message: types_pb2.HostOccupancy) -> HostOccupancy:
    """The host tier's ledger, in pages."""
    return HostOccupancy(message.total, message.free, message.evictable, message.protected, message.leased)


def occupancy(message: types_pb2.Occupancy) -> Occupancy:
    """The device tier's ledger, in pages."""
    return Occupancy(
        total=message.total,
        free=message.free,
        evictable=message.evictable,
        protected=message.protected,
        leased=message.leased,
        retired=message.retired,
        retired_mine=message.retired_mine,
        in_copy=message.in_copy,
        reserved_mine=message.reserved_mine,
        reserved_others=message.reserved_others,
        available=message.available,
        max_fit=message.max_fit,
    )


def limits(message: types_pb2.Limits) -> Limits:
    """What a message may hold."""
    return Limits(
        message_bytes=message.message_bytes,
        tokens=message.tokens,
        operations=message.operations,
        leases=message.leases,
        namespace_bytes=message.namespace_bytes,
        client_name_bytes=message.client_name_bytes,
        move_pairs=message.move_pairs,
        replay_batches=message.replay_batches,
        replay_bytes=message.replay_bytes,
    )


def liveness(message: session_pb2.Liveness) -> Liveness:
    """Seconds."""
    return Liveness(message.keepalive_seconds, message.grace_seconds, message.ttl_seconds)


def opened_session(message: session_pb2.OpenSessionResponse) -> OpenedSession:
    """All that OpenSession told."""
    return OpenedSession(
        session_id=message.session_id,
        secret=message.secret,
        epoch=message.epoch,
        generation=message.generation,
        pool=message.pool,
        speculative=speculative_name(message.speculative),
        dedup=dedup_name(message.dedup),
        page_size=message.page_size,
        total_pages=message.total_pages,
        geometry_fingerprint=message.geometry_fingerprint,
        attach_socket=message.attach_socket,
        limits=limits(message.limits),
        liveness=liveness(message.liveness),
        server_version=message.server_version,
        contract_revision=message.contract_revision,
        capabilities=frozenset(message.capabilities),
    )


def reply(message: cache_pb2.BatchReply) -> Reply:
    """All but the operations' own results."""
    return Reply(
        seq=message.seq,
        epoch=message.epoch,
        generation=message.generation,
        device=occupancy(message.device),
        host=host_occupancy(message.host),
        publications=tuple(publication(told) for told in message.publications),
        finished_copies=tuple(finished_copy(told) for told in message.finished_copies),
        arrivals=tuple(arrival(told) for told in message.arrivals),
        saved=tuple(saved_lease(told) for told in message.saved),
    )
