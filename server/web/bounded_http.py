"""HTTP whose connections cost the daemon a bounded number of descriptors: schedulers need the others."""

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

MOST = 256
"""Connections. For one more the oldest is cut off of those that nobody waits on, so a probe is always heard."""

QUIET_SECONDS = 10.0
"""A connection without a new request for so long is closed, also in the middle of one's head."""


class BoundedHttp(H11Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin; perhaps at another's cost."""
        super().connection_made(transport)
        self._began = self.loop.time()
        self._seen: RequestResponseCycle | None = None
        self._look = self.loop.call_later(QUIET_SECONDS, self._close_if_quiet)
        if len(self.connections) > MOST:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._look.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, also in a request's body: what the app says to that request comes too late."""
        super().send_400_response(msg)
        if self.cycle is not None:
            self.cycle.disconnected = True

    def _make_room(self) -> None:
        others = [it for it in self.connections if isinstance(it, BoundedHttp) and it is not self]
        quiet = [it for it in others if not it._is_under_way]
        least = min(quiet, key=lambda it: (it.cycle is not None, it._began), default=self)  # who never asked goes first
        self.connections.discard(least)
        least.transport.abort()

    @property
    def _is_under_way(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _close_if_quiet(self) -> None:
        if self.cycle is self._seen and not self._is_under_way:
            self.transport.close()
            return
        self._seen = self.cycle
        self._look = self.loop.call_later(QUIET_SECONDS, self._close_if_quiet)
