"""Where the sockets lie when nobody says otherwise: daemon and client agree by computing the same path."""

import os
from pathlib import Path

MAX_SOCKET_PATH = 107
"""Bytes of a Unix socket's path: sockaddr_un holds 108 with the terminating zero."""


def runtime_directory() -> Path:
    """$XDG_RUNTIME_DIR/radixd where a login session has one, else /run/radixd."""
    return Path(os.environ.get("XDG_RUNTIME_DIR") or "/run") / "radixd"


def default_socket() -> Path:
    """The daemon's gRPC socket."""
    return runtime_directory() / "radixd.sock"


def attach_socket(socket: Path) -> Path:
    """The socket beside `socket` that hands out pool memory. It has the longest name: limit this one's length."""
    return socket.with_name(f"{socket.name}.attach")
