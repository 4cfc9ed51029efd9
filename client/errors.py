"""What can go wrong: one exception class for each reason of the contract, and one for a daemon out of reach."""

from collections.abc import Iterable, Mapping
from typing import ClassVar, cast

import grpc
from google.rpc import error_details_pb2, status_pb2

from radixd.v1 import errors_pb2

DOMAIN = "radixd"
STATUS_KEY = "grpc-status-details-bin"


class RadixError(Exception):
    """Base of everything that radixd.client raises for the daemon's part. Misuse of Python types raises ValueError."""


class Unreachable(RadixError):
    """No daemon answers. Batches whose outcome is unknown are kept, and sent again with the same seq on reconnect."""


class CannotMap(RadixError):
    """This process cannot map the pool's memory; the message names the setting that is likely at fault."""


class Refused(RadixError):
    """The daemon said no, and changed nothing. Itself raised only for a reason that this version does not know.

    Attributes:
        reason: the contract's name for it, for example "NO_PAGES".
        facts: the refusal's metadata, for example needed, free, evictable.
        field: the field at fault, where one is named.
        retry_after: seconds after which the same call may succeed; None: do not retry.
    """

    REASON: ClassVar["errors_pb2.ErrorReason.ValueType"] = errors_pb2.ERROR_REASON_UNSPECIFIED

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        facts: Mapping[str, str] | None = None,
        field: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason or errors_pb2.ErrorReason.Name(self.REASON)
        self.facts: Mapping[str, str] = dict(facts or {})
        self.field = field
        self.retry_after = retry_after

    def __str__(self) -> str:
        told = ", ".join(f"{key}={value}" for key, value in sorted(self.facts.items()))
        return f"{self.reason}: {super().__str__()}" + (f" ({told})" if told else "")


class SessionOver(Refused):
    """The session cannot go on: its leases and attached views are void. `Session.reopen` starts a new one."""


class BadField(Refused, ValueError):
    """A field is malformed or out of range; `field` names it. The client raises it too, for what it could not send."""

    REASON = errors_pb2.BAD_FIELD


class NoSession(SessionOver):
    """Never opened, closed, expired or reaped; its leases are gone."""

    REASON = errors_pb2.NO_SESSION


class NoLease(Refused):
    """Never opened, or released."""

    REASON = errors_pb2.NO_LEASE


class NoPool(Refused):
    """The daemon serves no pool of that name; facts["pools"] lists those it does."""

    REASON = errors_pb2.NO_POOL


class NotYours(Refused):
    """The lease belongs to another session."""

    REASON = errors_pb2.NOT_YOURS


class BadSecret(SessionOver):
    """The secret is not the session's."""

    REASON = errors_pb2.BAD_SECRET


class Fenced(SessionOver):
    """A newer stream of the same session has taken over, from another process or Session object."""

    REASON = errors_pb2.FENCED


class StaleEpoch(SessionOver):
    """The daemon has restarted: every id of the old epoch is void, and so is memory mapped from it."""

    REASON = errors_pb2.STALE_EPOCH


class GeometryMismatch(Refused):
    """The fingerprint or speculative mode is not the pool's; facts hold both."""

    REASON = errors_pb2.GEOMETRY_MISMATCH


class DoubleFree(Refused):
    """The pages were already given up."""

    REASON = errors_pb2.DOUBLE_FREE


class Published(Refused):
    """The tree owns these pages, or is about to."""

    REASON = errors_pb2.PUBLISHED


class NotActive(Refused):
    """The verb needs a lease in another state; facts["state"] holds this one's."""

    REASON = errors_pb2.NOT_ACTIVE


class InFlight(Refused):
    """The lease has steps or copies in flight. Report a later `completed` first."""

    REASON = errors_pb2.IN_FLIGHT


class DependencyFailed(Refused):
    """An earlier operation of the Batch was to open the lease, and did not."""

    REASON = errors_pb2.DEPENDENCY_FAILED


class SeqReused(SessionOver):
    """The seq was used for a Batch with other content: two writers share one session."""

    REASON = errors_pb2.SEQ_REUSED


class SeqExpired(SessionOver):
    """The seq is older than the replies that are kept: an outcome is lost."""

    REASON = errors_pb2.SEQ_EXPIRED


class NeverFits(Refused):
    """More pages than the pool has at all; facts["max_tokens"] says the most that could be given. Do not retry."""

    REASON = errors_pb2.NEVER_FITS


class LimitExceeded(Refused):
    """Above a limit of the session: `field` names what, facts hold the numbers `limit` and `value` where known."""

    REASON = errors_pb2.LIMIT_EXCEEDED


class NoPages(Refused):
    """Not now: facts hold needed, free, evictable, retired, reserved; `retry_after` says when to try again."""

    REASON = errors_pb2.NO_PAGES


class Skipped(Refused):
    """An earlier operation of the same group met NO_PAGES. Send it again with the next Batch."""

    REASON = errors_pb2.SKIPPED


class Starting(Refused):
    """The daemon is starting: its memory is not ready yet."""

    REASON = errors_pb2.STARTING


class Draining(Refused):
    """The daemon is shutting down and takes no new work."""

    REASON = errors_pb2.DRAINING


class Bug(Refused):
    """An exception in the daemon before any change. Report it with facts["incident"]."""

    REASON = errors_pb2.BUG


class DeviceLost(SessionOver):
    """The pool's memory was never had, or its GPU failed: the pool is stopped until the daemon's next start."""

    REASON = errors_pb2.DEVICE_LOST


class BrokenInvariant(SessionOver):
    """The daemon's ledger no longer adds up: it has stopped serving the pool."""

    REASON = errors_pb2.BROKEN_INVARIANT


def _classes(base: type[Refused]) -> dict[str, type[Refused]]:
    found: dict[str, type[Refused]] = {}
    for child in base.__subclasses__():
        if child.REASON:
            found[errors_pb2.ErrorReason.Name(child.REASON)] = child
        found |= _classes(child)
    return found


BY_REASON: Mapping[str, type[Refused]] = _classes(Refused)
"""The contract's reason -> the class raised for it."""


def from_status(status: status_pb2.Status) -> Refused:
    """The exception for a google.rpc.Status as the contract fills it."""
    reason, facts, field, retry_after = "", {}, None, None
    for detail in status.details:
        kind = detail.TypeName()
        if kind == "google.rpc.ErrorInfo":
            info = error_details_pb2.ErrorInfo.FromString(detail.value)
            if info.domain == DOMAIN:
                reason, facts = info.reason, dict(info.metadata)
        elif kind == "google.rpc.BadRequest":
            violations = error_details_pb2.BadRequest.FromString(detail.value).field_violations
            field = violations[0].field if violations else None
        elif kind == "google.rpc.RetryInfo":
            delay = error_details_pb2.RetryInfo.FromString(detail.value).retry_delay
            retry_after = delay.seconds + delay.nanos * 1e-9
    refusal = BY_REASON.get(reason, Refused)
    return refusal(
        status.message, reason=reason or f"gRPC code {status.code}", facts=facts, field=field, retry_after=retry_after
    )


def from_rpc(error: grpc.RpcError) -> RadixError:
    """The exception for a call that ended badly: the contract's, where it carries one, else what gRPC says."""
    metadata = cast("Iterable[tuple[str, str | bytes]]", error.trailing_metadata() or ())
    for key, value in metadata:
        if key == STATUS_KEY and isinstance(value, bytes):
            return from_status(status_pb2.Status.FromString(value))
    code, told = error.code(), error.details() or ""
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        # gRPC refuses a message above its size limit by itself, without ErrorInfo.
        return LimitExceeded(f"message_bytes: {told}", field="message_bytes")
    if code in TRANSIENT:
        return Unreachable(f"{code.name}: {told}")
    return Refused(told, reason=f"gRPC {code.name}")


TRANSIENT = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.INTERNAL,  # grpc.aio's, for a write on a stream that has just broken
    grpc.StatusCode.UNKNOWN,
)
"""Without ErrorInfo these say that the connection broke or was too slow, not what became of the call."""


def is_passing(error: RadixError) -> bool:
    """Whether to reach for the daemon again: it is out of reach, starting, or on its way out."""
    return isinstance(error, Unreachable | Starting | Draining)
