"""What the daemon answers, as frozen plain data. Lengths are tokens from a sequence's start unless they say pages."""

from dataclasses import dataclass, field

from radixd.client.errors import Refused
from radixd.client.tokens import Pages


@dataclass(frozen=True, slots=True)
class MatchResult:
    """The longest cached prefix, in whole pages."""

    device_tokens: int
    host_tokens: int
    """Beyond them: on the host alone, or on their way from there."""
    unlocked_pages: int
    """Of the pages matched, those under no lock: what an Acquire would have to lock."""
    speculative: str
    """The pool's mode: none, bigram or drop_last_page."""
    rollback_tokens: int
    """What that mode took off the common prefix."""
    peer_tokens: int
    """Beyond device and host: on their way from another pool or, if that was asked, there to be imported."""
    peer_pool: str
    """That pool's name."""


@dataclass(frozen=True, slots=True)
class InsertResult:
    """What is in the tree through the lease, and whether more follows once its step has completed."""

    published: int
    pending: bool


@dataclass(frozen=True, slots=True)
class ReleaseResult:
    """What is in the tree through the lease, and how many of its pages went free or retired."""

    published: int
    freed_pages: int


@dataclass(frozen=True, slots=True)
class TablePatch:
    """From table index `first_page` on, `pages` replace the lease's own."""

    first_page: int
    pages: Pages


@dataclass(frozen=True, slots=True)
class Publication:
    """An Insert whose step has completed."""

    lease_id: int
    published: int


@dataclass(frozen=True, slots=True)
class FinishedCopy:
    """A Move that has ended; `error` is None where the bytes are in place."""

    copy_id: int
    error: Refused | None


@dataclass(frozen=True, slots=True)
class Arrival:
    """A copy that a lease waited for has ended; `error` is None where the bytes are in place."""

    lease_id: int
    copy_id: int
    readable: int
    error: Refused | None


@dataclass(frozen=True, slots=True)
class SavedLease:
    """An Offload that has ended: `error` is None where the lease is offloaded, otherwise it is active as it was."""

    lease_id: int
    error: Refused | None


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The device tier's ledger, pages: total = free + evictable + protected + leased + retired; the rest overlaps."""

    total: int
    free: int
    evictable: int
    protected: int
    leased: int
    retired: int
    retired_mine: int
    in_copy: int
    reserved_mine: int
    reserved_others: int
    available: int
    """free + evictable − reserved by others."""
    max_fit: int
    """The most new pages that an Acquire of this session could be given now."""


@dataclass(frozen=True, slots=True)
class HostOccupancy:
    """The host tier's ledger in pages: total = free + evictable + protected + leased. All 0 where there is none."""

    total: int
    free: int
    evictable: int
    protected: int
    """Cached, held by a lock or by an offloaded lease."""
    leased: int
    """Saved for offloaded leases, or being written by a copy."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a Batch brought besides its operations' own results."""

    seq: int
    epoch: int
    generation: int
    device: Occupancy
    host: HostOccupancy
    publications: tuple[Publication, ...]
    finished_copies: tuple[FinishedCopy, ...]
    arrivals: tuple[Arrival, ...]
    saved: tuple[SavedLease, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a message may hold, as the daemon stated at OpenSession."""

    message_bytes: int
    tokens: int
    operations: int
    leases: int
    namespace_bytes: int
    client_name_bytes: int
    move_pairs: int
    replay_batches: int
    replay_bytes: int


@dataclass(frozen=True, slots=True)
class Liveness:
    """Seconds: say something at least every `keepalive`; come back within `grace`; silent for `ttl` means the end."""

    keepalive_seconds: float
    grace_seconds: float
    ttl_seconds: float


@dataclass(frozen=True, slots=True)
class OpenedSession:
    """What OpenSession gave. `secret` authenticates every call and attach connection: keep it out of logs."""

    session_id: int
    secret: bytes = field(repr=False)
    epoch: int
    """The life of the daemon's memory."""
    generation: int
    """The life of the pool's tree at that moment; Flush bumps it, `Reply.generation` tells."""
    pool: str
    speculative: str
    dedup: str
    page_size: int
    """Tokens."""
    total_pages: int
    """Usable; page ids run from 1 to this."""
    geometry_fingerprint: bytes
    attach_socket: str
    """Empty where the pool hands out no memory."""
    limits: Limits
    liveness: Liveness
    server_version: str
    contract_revision: int
    capabilities: frozenset[str]
