"""What one daemon at a time may use: the sockets' path and the state directory, each under a lock."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from radixd.server.config import Config
from radixd.server.lockfile import LockFile


class ClaimError(RuntimeError):
    """A path that the daemon needs for itself cannot be used; the message is one line for the operator."""


@contextmanager
def claimed_sockets(config: Config) -> Iterator[None]:
    """Hold the sockets' path, and what a killed daemon left there is removed. Raises AlreadyRunning, ClaimError."""
    with ExitStack() as held:
        try:
            config.socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = LockFile(config.lock_file, "--socket")
            lock.acquire()
        except OSError as error:
            raise ClaimError(
                f"cannot use {config.lock_file}: {error.strerror}; give --socket PATH or set XDG_RUNTIME_DIR"
            ) from error
        held.callback(lock.release)
        for path in (config.socket, config.attach_socket):
            if path.is_socket():
                path.unlink()
            elif os.path.lexists(path):  # a link to nothing too
                raise ClaimError(f"{path} exists and is no socket: remove it, or give another --socket")
        yield


@contextmanager
def claimed_state_dir(config: Config) -> Iterator[None]:
    """Hold the state directory, if there is one, and make what is missing in it. Raises AlreadyRunning, ClaimError."""
    path = config.state_lock_file
    if path is None:
        yield
        return
    with ExitStack() as held:
        try:
            for directory in (path.parent, *(pool.host.state_dir for pool in config.pools)):
                if directory is not None:
                    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = LockFile(path, "--state-dir")
            lock.acquire()
        except OSError as error:
            name = error.filename or path
            raise ClaimError(
                f"cannot use the state directory: {name}: {error.strerror}; give another --state-dir"
            ) from error
        held.callback(lock.release)
        yield
