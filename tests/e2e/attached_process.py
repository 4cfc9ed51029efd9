"""A process that attaches to a pool and waits to be told to end: run as a program, with stdin as its leash.

Arguments: ATTACH_SOCKET EPOCH SESSION_ID SECRET [fork]. Prints the pids that hold the connection once they do. With
`fork`, a child inherits the connection and the mapping.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

from radixd.gpu_pool.attach_wire import AttachRequest, read_reply, send_request


class AttachedProcess:
    """The program, attached: `pids` are its own and its forked child's."""

    def __init__(self, attach_socket: Path, epoch: int, session_id: int, secret: bytes, *, fork: bool = False) -> None:
        arguments = (str(attach_socket), str(epoch), str(session_id), secret.hex(), *["fork"] * fork)
        command = [sys.executable, __file__, *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.pids = [int(pid) for pid in self.process.stdout.readline().split()]

    def kill(self) -> None:
        """SIGKILL the process that attached, and see its end; a forked child lives on."""
        self.process.kill()
        self.process.wait()


def main() -> None:
    """Attach, maybe fork, say so, and wait for stdin to end."""
    path, epoch, session_id, secret, *rest = sys.argv[1:]
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    send_request(connection, AttachRequest(int(epoch), int(session_id), bytes.fromhex(secret), os.getpid(), "worker"))
    reply = read_reply(connection)
    child = os.fork() if rest else 0
    if rest and not child:
        sys.stdin.read()
        return
    print(*[os.getpid(), child][: 1 + len(rest)], flush=True)
    sys.stdin.read()
    reply.close()


if __name__ == "__main__":
    main()
