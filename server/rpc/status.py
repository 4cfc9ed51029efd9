"""Refusals as google.rpc.Status, over the wire and inside a Batch."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Never, TypeVar

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from radixd.server.cache.refusal import Reason, Refusal

Request = TypeVar("Request")
Response = TypeVar("Response")

DOMAIN = "radixd"
DETAILS_KEY = "grpc-status-details-bin"

CODES: Mapping[Reason, grpc.StatusCode] = {
    Reason.BAD_FIELD: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.NO_SESSION: grpc.StatusCode.NOT_FOUND,
    Reason.NO_LEASE: grpc.StatusCode.NOT_FOUND,
    Reason.NO_POOL: grpc.StatusCode.NOT_FOUND,
    Reason.NOT_YOURS: grpc.StatusCode.PERMISSION_DENIED,
    Reason.BAD_SECRET: grpc.StatusCode.UNAUTHENTICATED,
    Reason.FENCED: grpc.StatusCode.ABORTED,
    Reason.STALE_EPOCH: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.GEOMETRY_MISMATCH: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.DOUBLE_FREE: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.PUBLISHED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.NOT_ACTIVE: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.IN_FLIGHT: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.DEPENDENCY_FAILED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.SEQ_REUSED: grpc.StatusCode.ALREADY_EXISTS,
    Reason.SEQ_EXPIRED: grpc.StatusCode.OUT_OF_RANGE,
    Reason.NEVER_FITS: grpc.StatusCode.OUT_OF_RANGE,
    Reason.LIMIT_EXCEEDED: grpc.StatusCode.OUT_OF_RANGE,
    Reason.NO_PAGES: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.SKIPPED: grpc.StatusCode.ABORTED,
    Reason.STARTING: grpc.StatusCode.UNAVAILABLE,
    Reason.DRAINING: grpc.StatusCode.UNAVAILABLE,
    Reason.DEVICE_LOST: grpc.StatusCode.UNAVAILABLE,
    Reason.BUG: grpc.StatusCode.INTERNAL,
    Reason.BROKEN_INVARIANT: grpc.StatusCode.INTERNAL,
}

RETRY_AFTER: Mapping[Reason, timedelta] = {
    Reason.NO_PAGES: timedelta(milliseconds=20),  # about a decode step: that is when pages come free
    Reason.STARTING: timedelta(seconds=1),
    Reason.DRAINING: timedelta(seconds=1),
}

FIELD_REASONS = (Reason.BAD_FIELD, Reason.LIMIT_EXCEEDED)


def to_status(refusal: Refusal) -> status_pb2.Status:
    """The Status of a refusal, with ErrorInfo and, where they belong, BadRequest and RetryInfo."""
    reason = refusal.reason
    facts = {key: str(value) for key, value in refusal.facts.items()}
    details: list[Message] = [error_details_pb2.ErrorInfo(reason=reason.value, domain=DOMAIN, metadata=facts)]
    if reason in FIELD_REASONS and refusal.field:
        violation = error_details_pb2.BadRequest.FieldViolation(field=refusal.field, description=refusal.message)
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if reason in RETRY_AFTER:
        delay = duration_pb2.Duration()
        delay.FromTimedelta(RETRY_AFTER[reason])
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    return status_pb2.Status(code=CODES[reason].value[0], message=refusal.message, details=map(_packed, details))


def _packed(detail: Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed


async def abort(context: grpc.aio.ServicerContext[Request, Response], refusal: Refusal) -> Never:
    """Ends a call with a refusal."""
    details = (DETAILS_KEY, to_status(refusal).SerializeToString())
    await context.abort(CODES[refusal.reason], refusal.message, (details,))
