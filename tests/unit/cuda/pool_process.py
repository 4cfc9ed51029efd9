"""A process that owns a pool on fake GPUs and hands it out on an attach socket: run as a program.

Arguments: SOCKET EPOCH COUNT [PID], PID being what it says its own is. Says "ready"; then obeys its stdin: `fill RANK
PAGE VALUE`, `page RANK PAGE`, `attached`, each answered by a line; at its end it closes the pool and ends in order.
"""

import json
import os
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

from radixd.gpu_pool.attach_wire import AttachReply, read_request, send_reply
from radixd.gpu_pool.cuda.gpu import find_gpus
from radixd.gpu_pool.layout import Layout
from radixd.gpu_pool.memory import PoolMemory
from radixd.gpu_pool.presets import load_geometry

PAGES = 12
LAYOUT = Layout(load_geometry("tiny"), "layer_first", PAGES)


class PoolProcess:
    """The program, ready."""

    def __init__(self, env: dict[str, str], path: Path, epoch: int = 1, count: int = 2, pid: int | None = None) -> None:
        arguments = [str(path), str(epoch), str(count), *([] if pid is None else [str(pid)])]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.cuda.pool_process", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )
        assert self._line() == "ready"

    def ask(self, *words: object) -> object:
        """What it answers to a command."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return json.loads(self._line())

    def attached(self) -> int:
        """How many attach connections the other end has not closed."""
        count = self.ask("attached")
        assert isinstance(count, int)
        return count

    def end(self) -> None:
        """Close its stdin and see it end in order."""
        assert self.process.communicate() == ("", None)
        assert self.process.returncode == 0

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.communicate()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


def serve(listener: socket.socket, reply: AttachReply, held: list[socket.socket]) -> None:
    """Answers whoever connects, and keeps the connections, until the listener is shut down.

    A connection is held before it is answered: whoever has the answer may count on that.
    """
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        received = read_request(connection)
        if received.pidfd is not None:
            os.close(received.pidfd)
        held.append(connection)
        send_reply(connection, reply)


def is_open(connection: socket.socket) -> bool:
    """Whether the other end is."""
    try:
        return connection.recv(1, socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True


def main() -> None:
    path, epoch, count, *pid = sys.argv[1:]
    listener = socket.socket(socket.AF_UNIX)
    Path(path).unlink(missing_ok=True)
    listener.bind(path)
    listener.listen()
    with PoolMemory.on_gpus(LAYOUT, find_gpus((), int(count))) as memory:
        handles = memory.export()
        if pid:
            handles = tuple(replace(it, gpu=replace(it.gpu, pid=int(pid[0]))) for it in handles if it.gpu)
        reply = AttachReply(int(epoch), LAYOUT, handles)
        held: list[socket.socket] = []
        threading.Thread(target=serve, args=(listener, reply, held), daemon=True).start()
        print("ready", flush=True)
        for command in sys.stdin:
            if command == "attached\n":
                print(sum(map(is_open, held)), flush=True)
                continue
            verb, rank, page, *value = command.split()
            rows = memory.views[int(rank)].layer_rows
            if verb == "fill":
                for layer in rows:
                    layer[int(page)] = int(value[0])
            print(
                json.dumps(sorted({byte for layer in rows for byte in layer[int(page)].unique().tolist()})), flush=True
            )


if __name__ == "__main__":
    main()
