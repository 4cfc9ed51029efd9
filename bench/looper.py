"""A client that loops one large call, in a process of its own: what it computes delays no other client, only servers.

python -m bench.looper SOCKET PATH matches LOOPED_TOKENS tokens by the unary method PATH, again and again from one line
on standard input to the next. It ends with its input.
"""

import select
import sys
from pathlib import Path
from subprocess import PIPE, Popen
from types import TracebackType
from typing import Self

import grpc

from bench.calls import MATCH, OpenSession, open_request
from bench.workload import leaf_tokens
from radixd.client.channel import OPTIONS
from radixd.v1 import cache_pb2, session_pb2_grpc

LOOPED_TOKENS = 2**20


class Looper:
    """The process; it loops inside of a `with` block."""

    def __init__(self, socket: Path, path: str) -> None:
        self._process = Popen([sys.executable, "-m", "bench.looper", str(socket), path], stdin=PIPE, text=True)

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def __enter__(self) -> Self:
        self._say("loop")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._say("rest")

    def close(self) -> None:
        """End it."""
        self._process.communicate()


def main(socket: str, path: str) -> None:
    """The process's whole life."""
    with grpc.insecure_channel(f"unix:{socket}", options=OPTIONS) as channel:
        session = None
        if path == MATCH:
            session = OpenSession(session_pb2_grpc.SessionsStub(channel).OpenSession(open_request()))
        method = channel.unary_unary(path, cache_pb2.MatchRequest.SerializeToString, cache_pb2.MatchResponse.FromString)
        request = cache_pb2.MatchRequest(match=cache_pb2.Match(tokens=leaf_tokens(0, LOOPED_TOKENS).tobytes()))
        while sys.stdin.readline():
            while not select.select([sys.stdin], [], [], 0)[0]:
                if session is not None:
                    session.stamp(request.call)
                method(request)
            sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
