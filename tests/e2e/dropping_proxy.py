"""A Unix socket in front of a daemon's, whose connections a test can cut."""

import socket
import threading
from contextlib import suppress
from pathlib import Path


class DroppingProxy:
    """Forwards connections from `path` to `upstream`, byte for byte, until `drop`."""

    def __init__(self, path: Path, upstream: Path) -> None:
        self.path = path
        self._upstream = upstream
        self._open: list[socket.socket] = []
        self._answers = threading.Event()
        self._answers.set()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def hold_answers(self) -> None:
        """What the daemon says goes no further until the next `drop`: the client does not learn what it did."""
        self._answers.clear()

    def drop(self) -> None:
        """Cut every connection; new ones are forwarded again."""
        cut, self._open = self._open, []
        for sock in cut:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._answers.set()

    def close(self) -> None:
        """Cut everything and take no more."""
        self._listener.close()
        self.drop()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                if far.connect_ex(str(self._upstream)):  # no daemon now, maybe later
                    near.close()
                    continue
                self._open += [near, far]
                threading.Thread(target=self._pump, args=(near, far, False), daemon=True).start()
                threading.Thread(target=self._pump, args=(far, near, True), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if answers and not self._answers.is_set():
                    self._answers.wait()
                    break
                sink.sendall(data)
        for sock in (source, sink):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
