"""A connection to a daemon, for schedulers whose loop is a thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

import grpc

from radixd.client import convert
from radixd.client.backoff import Backoff
from radixd.client.channel import CALL_SECONDS, OPTIONS, client_closed, not_opened, target
from radixd.client.convert import Dedup, Speculative
from radixd.client.errors import RadixError, from_rpc, is_passing
from radixd.client.opening import Opening
from radixd.client.results import OpenedSession
from radixd.client.sync.session import Session
from radixd.v1 import session_pb2, session_pb2_grpc

Q = TypeVar("Q")
R = TypeVar("R")


class Client:
    """A connection to one daemon, for any number of sessions. Thread-safe.

    A session's calls may block for as long as its `liveness.grace_seconds` while no daemon answers; see `Session`.

    Args:
        socket: the daemon's gRPC socket, or host:port. None: $XDG_RUNTIME_DIR/radixd/radixd.sock, else
            /run/radixd/radixd.sock, which is the daemon's own default.
    """

    def __init__(self, socket: str | os.PathLike[str] | None = None) -> None:
        self.target = target(socket)
        self.channel = grpc.insecure_channel(self.target, options=OPTIONS)
        self._sessions = session_pb2_grpc.SessionsStub(self.channel)

    def open_session(
        self,
        *,
        model: bytes,
        pool: str = "",
        name: str = "",
        fingerprint: bytes = b"",
        dedup: Dedup = "keep",
        speculative: Speculative | None = None,
        patience: float = 0.0,
        on_restart: Callable[[Session], None] | None = None,
    ) -> Session:
        """Open a session.

        Args:
            model: digest of checkpoint, weights version and KV writer format, 1 to 64 bytes. Part of every namespace.
            pool: empty: the daemon's only pool.
            name: a label for people.
            fingerprint: of the geometry that the engine writes, 16 bytes; empty: the pool's, on trust.
            dedup: "keep": page tables are append-only. "patch": they get canonical page ids at step boundaries.
            speculative: must be the pool's mode; None takes the pool's.
            patience: seconds to wait for a daemon that is not there yet, or still starting.
            on_restart: reopen by itself when the daemon has restarted, then call this, on a thread of the session's.

        Raises NoPool, GeometryMismatch, BadField, LimitExceeded, Starting, Draining; Unreachable without a daemon.
        """
        opening = Opening(pool, name, model, fingerprint, dedup, speculative)
        return Session(self, opening, self.open(opening, patience), on_restart)

    def open(self, opening: Opening, patience: float) -> OpenedSession:
        """The RPC alone, tried until `patience` is used up while the daemon is out of reach or starting."""
        request, backoff, wait = opening.request(), Backoff(patience), threading.Event().wait
        while True:
            try:
                return convert.opened_session(self._call(self._sessions.OpenSession, request))
            except RadixError as error:
                if not is_passing(error) or backoff.exhausted:
                    raise not_opened(self.target, error) from None
                wait(backoff.delay(error))

    def close_session(self, request: session_pb2.CloseSessionRequest) -> None:
        """The RPC alone."""
        self._call(self._sessions.CloseSession, request)

    def close(self) -> None:
        """Give up the connection. Close the sessions first: those still open are over, and keep their pages a while."""
        self.channel.close()

    def _call(self, method: grpc.UnaryUnaryMultiCallable[Q, R], request: Q) -> R:
        try:
            return method(request, timeout=CALL_SECONDS)
        except grpc.RpcError as failed:
            raise from_rpc(failed) from None
        except ValueError:  # gRPC's, of a channel that was closed
            raise client_closed() from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
