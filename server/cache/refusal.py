"""Why an operation was refused. A refused operation has changed nothing."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """The names of proto/radixd/v1/errors.proto, which documents each."""

    BAD_FIELD = "BAD_FIELD"
    NO_SESSION = "NO_SESSION"
    NO_LEASE = "NO_LEASE"
    NO_POOL = "NO_POOL"
    NOT_YOURS = "NOT_YOURS"
    BAD_SECRET = "BAD_SECRET"
    FENCED = "FENCED"
    STALE_EPOCH = "STALE_EPOCH"
    GEOMETRY_MISMATCH = "GEOMETRY_MISMATCH"
    DOUBLE_FREE = "DOUBLE_FREE"
    PUBLISHED = "PUBLISHED"
    NOT_ACTIVE = "NOT_ACTIVE"
    IN_FLIGHT = "IN_FLIGHT"
    DEPENDENCY_FAILED = "DEPENDENCY_FAILED"
    SEQ_REUSED = "SEQ_REUSED"
    SEQ_EXPIRED = "SEQ_EXPIRED"
    NEVER_FITS = "NEVER_FITS"
    LIMIT_EXCEEDED = "LIMIT_EXCEEDED"
    NO_PAGES = "NO_PAGES"
    SKIPPED = "SKIPPED"
    STARTING = "STARTING"
    DRAINING = "DRAINING"
    DEVICE_LOST = "DEVICE_LOST"
    BUG = "BUG"
    BROKEN_INVARIANT = "BROKEN_INVARIANT"


class Refusal(Exception):
    """An operation that was not carried out, for a reason that a client can switch on.

    `field` names the request field at fault (BAD_FIELD, LIMIT_EXCEEDED); `facts` are the figures behind the refusal.
    """

    def __init__(self, reason: Reason, message: str, *, field: str = "", facts: dict[str, int | str] | None = None):
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.field = field
        self.facts = facts or {}


class BrokenInvariant(Exception):
    """The ledger no longer adds up: serving on could hand out wrong bytes. Holds every violation found."""

    def __init__(self, *violations: str):
        super().__init__("; ".join(violations))
        self.violations = violations
