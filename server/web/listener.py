"""The HTTP listener: uvicorn on a thread of its own."""

import asyncio
import errno
import logging
import socket
import threading

import uvicorn
from starlette.types import ASGIApp

from radixd.server.config import DEFAULT_METRICS, Address
from radixd.server.web.bounded_http import BoundedHttp

BACKLOG = 128

log = logging.getLogger(__name__)


class WebListener:
    """Serves an app until closed, on a loop of its own: no slow client holds the daemon's up."""

    def __init__(self, address: Address, app: ASGIApp) -> None:
        """Raises OSError where the port is taken, unless nobody asked for that port."""
        self._socket = _bind(address)
        self.address = Address(address.host, self._socket.getsockname()[1])
        """Where it listens; not always where it was asked to, see DEFAULT_METRICS."""
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http=BoundedHttp,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="radixd-web", daemon=True
        )
        self._thread.start()

    async def close(self) -> None:
        """Stop serving. The loop goes on meanwhile: requests under way may wait for it."""
        self._server.should_exit = True
        await asyncio.to_thread(self._thread.join)
        self._socket.close()


def _bind(address: Address) -> socket.socket:
    try:
        return _bound(address.host, address.port)
    except OSError as error:
        # By identity: an equal address, from a flag or a file, was asked for.
        if address is not DEFAULT_METRICS or error.errno != errno.EADDRINUSE:
            raise
        instead = _bound(address.host, 0)
        port = instead.getsockname()[1]
        log.warning("%s is taken: the status page and metrics are on port %d; choose one with --metrics", address, port)
        return instead


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)
