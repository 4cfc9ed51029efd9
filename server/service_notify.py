"""What the service manager is told of the daemon's life: sd_notify(3), over the socket in $NOTIFY_SOCKET."""

import logging
import os
import socket
from collections.abc import Mapping

log = logging.getLogger(__name__)


class ServiceNotify:
    """Without $NOTIFY_SOCKET, as in a shell or a container, every call does nothing.

    Messages never wait: what the manager has no room for is dropped, and a watchdog that misses one gets the next.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        path = environ.get("NOTIFY_SOCKET", "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path  # Linux's abstract sockets
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)

    def ready(self, status: str) -> None:
        """Start-up is over: `status` is one line for `systemctl status`."""
        self._send(f"READY=1\nSTATUS={status}")

    def stopping(self) -> None:
        """The drain has begun."""
        self._send("STOPPING=1\nSTATUS=draining")

    def alive(self) -> None:
        """The event loop turns. A manager with WatchdogSec= ends a daemon that stops saying so."""
        self._send("WATCHDOG=1")

    def close(self) -> None:
        """Nothing more will be said."""
        self._socket.close()

    def _send(self, message: str) -> None:
        if not self._address:
            return
        try:
            self._socket.sendto(message.encode(), self._address)
        except BlockingIOError:
            pass
        except OSError as error:
            log.warning("cannot tell the service manager at %r: %s", self._address, error.strerror)
            self._address = ""
