"""How the client reaches a daemon: target, channel options, method names.

Messages of megabytes (prompts of 100,000 tokens and more) cost mostly page faults, unless glibc keeps freed memory:
start the engine with MALLOC_MMAP_THRESHOLD_, MALLOC_TRIM_THRESHOLD_ and MALLOC_TOP_PAD_ set as the daemon sets its own
(radixd.server.malloc). They are read once, at a process's start.
"""

import os
from pathlib import Path

from radixd.client.errors import Draining, RadixError, SessionOver, Starting, Unreachable
from radixd.gpu_pool.paths import default_socket
from radixd.v1 import cache_pb2

MESSAGE_BYTES = 64 * 2**20
"""The contract's hard cap; the daemon's own limit, told by OpenSession, may be lower."""

CALL_SECONDS = 10.0
"""Deadline of the small unary calls: the daemon answers them in well under a millisecond."""

IDLE_REPORT_SECONDS = 1.0
"""How soon after its last step an idle engine's retired pages go free, though it sends no Batch."""

COPY_POLL_SECONDS = 0.002
"""How often `wait_loaded` and `wait_saved` ask; pages travel at gigabytes a second."""

OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    # A connection of one's own: two clients in a process neither share flow control nor each other's fate.
    ("grpc.use_local_subchannel_pool", 1),
    # Retries are ours: only we know which seq is unanswered.
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 500),
)

_CACHE = cache_pb2.DESCRIPTOR.services_by_name["Cache"]
SCHEDULE = f"/{_CACHE.full_name}/{_CACHE.methods_by_name['Schedule'].name}"
"""Called with bytes already serialised: what is sent again must be the very same."""


def target(socket: str | os.PathLike[str] | None) -> str:
    """gRPC's name for a Unix socket's path (None: the daemon's default one), or for host:port."""
    if socket is None:
        socket = default_socket()
    name = os.fspath(socket)
    if "/" not in name and ":" in name:
        return name
    return f"unix:{Path(name).absolute()}"


def no_daemon(target: str, error: RadixError) -> Unreachable:
    """The same, for people who wait for a reply: what was found at `target`, and what to do."""
    if isinstance(error, Starting):
        told = f"the daemon at {target} is still starting: what was sent is kept, and is sent again once it serves"
    elif isinstance(error, Draining):
        told = f"the daemon at {target} is shutting down: what was sent is kept, and is sent to the one that follows"
    else:
        told = f"no daemon answers at {target}: start one with `radixd serve`, or name its socket"
    return Unreachable(f"{told} ({error})")


def not_opened(target: str, error: RadixError) -> RadixError:
    """The same, for people who open a session."""
    way = "`patience=` gives it that many seconds"
    if isinstance(error, Unreachable):
        told = f"no daemon answers at {target}: start one with `radixd serve`, or name its socket"
        return Unreachable(f"{told}; {way} to come ({error})")
    if isinstance(error, Starting | Draining):
        told = f"{error.args[0]}; {way} to serve"
        return type(error)(told, facts=error.facts, field=error.field, retry_after=error.retry_after)
    return error


def client_closed() -> SessionOver:
    """What is said of a call, or of a session, once its client was closed."""
    return SessionOver("the client was closed, and its sessions with it: make another Client", reason="CLIENT_CLOSED")
