"""A daemon whose event loop stands still for a second for each page of an Evict.

It says so on the service manager's socket.
"""

import os
import socket
import sys
import time

from radixd.server.cli import main
from radixd.server.rpc import admin_service
from radixd.v1 import admin_pb2

BEGUN, OVER = b"X_STALL=begun", b"X_STALL=over"

_evict = admin_service.AdminService.evict


def evict(self: admin_service.AdminService, request: admin_pb2.EvictRequest) -> object:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.sendto(BEGUN, os.environ["NOTIFY_SOCKET"])
        time.sleep(request.pages)
        notify.sendto(OVER, os.environ["NOTIFY_SOCKET"])
    return _evict(self, request)


if __name__ == "__main__":
    admin_service.AdminService.evict = evict
    sys.exit(main())
