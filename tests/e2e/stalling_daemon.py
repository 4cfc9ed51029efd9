"""A daemon whose event loop stands still during Evict, and says so on the service manager's socket."""

import os
import socket
import sys
import time

from radixd.server.cli import main
from radixd.server.rpc import admin_service
from radixd.server.sessions.liveness import TICK_SECONDS

BEGUN, OVER = b"X_STALL=begun", b"X_STALL=over"

_evict = admin_service.AdminService.evict


def evict(self: admin_service.AdminService, request: object) -> object:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.sendto(BEGUN, os.environ["NOTIFY_SOCKET"])
        time.sleep(2.5 * TICK_SECONDS)
        notify.sendto(OVER, os.environ["NOTIFY_SOCKET"])
    return _evict(self, request)


if __name__ == "__main__":
    admin_service.AdminService.evict = evict
    sys.exit(main())
