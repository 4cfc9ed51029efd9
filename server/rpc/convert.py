"""Between the contract's messages and the cache's plain data: the nouns that several calls share."""

from collections.abc import Iterable, Mapping

from radixd.server.cache.namespace import Namespace
from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.cache.results import Arrival, FinishedCopy, HostOccupancy, Occupancy, Publication, Saved, TablePatch
from radixd.server.cache.speculative import Speculative
from radixd.server.rpc.status import to_status
from radixd.server.sessions.limits import check_limit
from radixd.server.sessions.served_session import ServedSession
from radixd.v1 import cache_pb2, types_pb2

SPECULATIVE: Mapping[Speculative, types_pb2.SpeculativeMode.ValueType] = {
    Speculative.NONE: types_pb2.SPECULATIVE_MODE_NONE,
    Speculative.BIGRAM: types_pb2.SPECULATIVE_MODE_BIGRAM,
    Speculative.DROP_LAST_PAGE: types_pb2.SPECULATIVE_MODE_DROP_LAST_PAGE,
}


def bad_field(field: str, message: str) -> Refusal:
    """A BAD_FIELD refusal whose message begins with the field's name."""
    return Refusal(Reason.BAD_FIELD, f"{field}: {message}", field=field)


def namespace(message: cache_pb2.Match | cache_pb2.Acquire, session: ServedSession) -> Namespace:
    """The namespace that a message names, of its session's model. Refuses parts above limits.namespace_bytes."""
    if not message.HasField("namespace"):
        return session.namespace
    extra_key, cache_salt = message.namespace.extra_key, message.namespace.cache_salt
    limit = session.limits.namespace_bytes
    check_limit("namespace.extra_key", len(extra_key), limit, "bytes")
    check_limit("namespace.cache_salt", len(cache_salt), limit, "bytes")
    return Namespace(session.opening.model, extra_key, cache_salt)


def fill_occupancy(message: types_pb2.Occupancy, ledger: Occupancy) -> None:
    """Writes a tier's ledger."""
    message.total = ledger.total
    message.free = ledger.free
    message.evictable = ledger.evictable
    message.protected = ledger.protected
    message.leased = ledger.leased
    message.retired = ledger.retired
    message.retired_mine = ledger.retired_mine
    message.in_copy = ledger.in_copy
    message.reserved_mine = ledger.reserved_mine
    message.reserved_others = ledger.reserved_others
    message.available = ledger.available
    message.max_fit = ledger.max_fit


def fill_host_occupancy(message: types_pb2.HostOccupancy, ledger: HostOccupancy) -> None:
    """Writes the host tier's ledger."""
    message.total = ledger.total
    message.free = ledger.free
    message.evictable = ledger.evictable
    message.protected = ledger.protected
    message.leased = ledger.leased


def patches(results: Iterable[TablePatch]) -> list[cache_pb2.TablePatch]:
    """Table patches, page ids as little-endian int32."""
    return [cache_pb2.TablePatch(first_page=patch.first_page, pages=patch.pages.tobytes()) for patch in results]


def publication(result: Publication) -> cache_pb2.Publication:
    """An Insert whose step has completed."""
    return cache_pb2.Publication(lease_id=result.lease_id, published=result.published, patches=patches(result.patches))


def finished_copy(result: FinishedCopy) -> cache_pb2.FinishedCopy:
    """A copy that has ended; one that failed carries a status of reason BUG."""
    message = cache_pb2.FinishedCopy(copy_id=result.copy_id)
    if result.error:
        text = f"copy {result.copy_id} failed, its destinations hold no valid KV: {result.error}"
        message.status.CopyFrom(to_status(Refusal(Reason.BUG, text)))
    return message


def arrival(result: Arrival) -> cache_pb2.Arrival:
    """A copy that a lease waited for; one that failed carries a status of reason BUG."""
    message = cache_pb2.Arrival(
        lease_id=result.lease_id,
        copy_id=result.copy_id,
        readable=result.device_tokens,
        patches=patches(result.patches),
    )
    if result.error:
        text = f"copy {result.copy_id} failed, compute from {result.device_tokens} tokens on: {result.error}"
        message.status.CopyFrom(to_status(Refusal(Reason.BUG, text)))
    return message


def saved_lease(result: Saved) -> cache_pb2.SavedLease:
    """An Offload that has ended; one that failed carries a status of reason BUG."""
    message = cache_pb2.SavedLease(lease_id=result.lease_id)
    if result.error:
        text = f"lease {result.lease_id} could not be saved, it is active as it was: {result.error}"
        message.status.CopyFrom(to_status(Refusal(Reason.BUG, text)))
    return message
