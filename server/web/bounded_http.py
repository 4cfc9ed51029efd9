"""HTTP whose connections cost the daemon a bounded number of descriptors: schedulers need the others."""

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

ANSWERED = 256
"""Open connections from which on whoever asks is told 503: a client that can be told why is not cut off."""

KEPT = 512
"""Open connections, of which one more is cut off. What asks nothing cannot be told 503, and costs a descriptor all the
same; up to here there is room to tell those who ask."""

QUIET_SECONDS = 10.0
"""A connection without a new request for so long is closed, also in the middle of one's head."""


class BoundedHttp(H11Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, or refuse to."""
        super().connection_made(transport)
        self._seen: RequestResponseCycle | None = None
        self._look = self.loop.call_later(QUIET_SECONDS, self._close_if_quiet)
        if len(self.connections) > KEPT:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._look.cancel()
        super().connection_lost(exc)

    def _close_if_quiet(self) -> None:
        under_way = self.cycle is not None and not self.cycle.response_complete
        if self.cycle is self._seen and not under_way:
            self.transport.close()
            return
        self._seen = self.cycle
        self._look = self.loop.call_later(QUIET_SECONDS, self._close_if_quiet)
