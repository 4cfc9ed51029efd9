"""A session as both transports share it: its conversation, its steps, its part of the pool's memory. No RPC."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Generic

from radixd.client.batch import L
from radixd.client.connection import AttachConnection, connect
from radixd.client.errors import SessionOver, Unreachable
from radixd.client.exchange import Exchange
from radixd.client.lease import Standing
from radixd.client.opening import Opening
from radixd.client.results import HostOccupancy, Limits, Liveness, Occupancy, OpenedSession
from radixd.client.ticket import AttachTicket
from radixd.v1 import session_pb2

if TYPE_CHECKING:
    from radixd.client.attach import Attachment


class SessionState(Generic[L]):
    """One connected scheduler. It owns leases; its end gives back all of them.

    `model`, `page_size` and the like never change; `session_id` and `epoch` are new after `reopen`.
    """

    def __init__(self, opening: Opening, opened: OpenedSession, lease_class: Callable[[Standing], L]) -> None:
        self._opening = opening
        self._lease_class = lease_class
        self._attachment: Attachment | None = None
        self._attaches = False
        """Whether the pool was mapped, and is to be mapped again by the session that follows."""
        self._presence: AttachConnection | None = None
        self.exchange: Exchange[L] = Exchange(opened, lease_class)

    @property
    def opened(self) -> OpenedSession:
        """All that the daemon told when the session was opened."""
        return self.exchange.opened

    @property
    def session_id(self) -> int:
        """The daemon's name for it."""
        return self.opened.session_id

    @property
    def epoch(self) -> int:
        """The life of the daemon's memory; a restart begins another."""
        return self.opened.epoch

    @property
    def generation(self) -> int:
        """The life of the pool's tree as last told; a Flush begins another."""
        return self.exchange.generation

    @property
    def pool(self) -> str:
        """The pool's name."""
        return self.opened.pool

    @property
    def page_size(self) -> int:
        """Tokens."""
        return self.opened.page_size

    @property
    def total_pages(self) -> int:
        """The pool's usable pages."""
        return self.opened.total_pages

    @property
    def limits(self) -> Limits:
        """What a message may hold."""
        return self.opened.limits

    @property
    def liveness(self) -> Liveness:
        """How long the daemon bears silence."""
        return self.opened.liveness

    @property
    def capabilities(self) -> frozenset[str]:
        """Optional features; do not call what is absent."""
        return self.opened.capabilities

    @property
    def device(self) -> Occupancy | None:
        """The device tier's ledger as the last reply told it; None before the first."""
        return self.exchange.device

    @property
    def host(self) -> HostOccupancy | None:
        """The host tier's ledger as the last reply told it, all 0 where there is none; None before the first."""
        return self.exchange.host

    @property
    def launched(self) -> int:
        """Steps enqueued so far, as reported by `step`."""
        return self.exchange.launched

    @property
    def completed(self) -> int:
        """Steps seen finished on every rank, as reported by `step`."""
        return self.exchange.completed

    @property
    def over(self) -> SessionOver | None:
        """What ended the session; None while it lives."""
        return self.exchange.over

    def ticket(self) -> AttachTicket:
        """What a worker process needs to attach in this session's name. ValueError where the pool has no memory."""
        return ticket(self.opened)

    def _join(self, opened: OpenedSession) -> None:
        """Let the daemon know which process is behind the session, and map the pool again if it was. Blocks.

        Where that fails, nobody is behind the session, and the daemon ends it.
        """
        try:
            if opened.attach_socket:
                # From another container the socket may be out of sight. Then a death shows only by the stream's end.
                with suppress(Unreachable):
                    self._presence = connect(ticket(opened), role="scheduler")
                    self._presence.close_handles()
            if self._attaches:
                self._attach(opened)
        except BaseException:
            self._detach()
            raise

    def _attach(self, opened: OpenedSession) -> Attachment:
        """Map the pool, once. Blocks."""
        if self._attachment is None:
            from radixd.client.attach import attach

            self._attachment = attach(ticket(opened), role="scheduler")
            self._attaches = True
        return self._attachment

    def _detach(self) -> None:
        """Unmap the pool and end the connections that say so. Idempotent."""
        attachment, self._attachment = self._attachment, None
        if attachment is not None:
            attachment.close()
        presence, self._presence = self._presence, None
        if presence is not None:
            presence.close()

    def _void(self, error: SessionOver) -> None:
        """The session is over: views first, then leases and whoever waits."""
        if self._attachment is not None:
            self._attachment.invalidate(error)
        self.exchange.end(error)

    def _close_request(self) -> session_pb2.CloseSessionRequest:
        opened = self.opened
        return session_pb2.CloseSessionRequest(
            session_id=opened.session_id, secret=opened.secret, epoch=opened.epoch, completed=self.completed
        )


def ticket(opened: OpenedSession) -> AttachTicket:
    """What a process needs to attach in the session's name. ValueError where the pool has no memory."""
    if not opened.attach_socket:
        raise ValueError(f"pool {opened.pool} hands out no memory (device meta): there is nothing to attach")
    return AttachTicket(
        opened.attach_socket, opened.session_id, opened.secret, opened.epoch, opened.geometry_fingerprint
    )
