"""A server process on a Unix socket: started, waited for until its health says SERVING, and ended."""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from types import TracebackType
from typing import Self

import grpc
from grpc_health.v1 import health_pb2

CHECK = "/grpc.health.v1.Health/Check"
START_SECONDS = 60.0
POOL_TOKENS = 8 * 2**20


class ServerProcess:
    """One server, from construction to `close` or the end of a `with` block."""

    def __init__(self, command: list[str], directory: "TemporaryDirectory[str]", socket: Path) -> None:
        self.socket = socket
        self._directory = directory
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def _wait(self) -> None:
        given_up = monotonic() + START_SECONDS
        with grpc.insecure_channel(f"unix:{self.socket}") as channel:
            check = channel.unary_unary(
                CHECK,
                request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
                response_deserializer=health_pb2.HealthCheckResponse.FromString,
            )
            while monotonic() < given_up:
                if self._process.poll() is not None:
                    raise RuntimeError(f"{self._process.args!r} ended with status {self._process.returncode}")
                try:
                    answer = check(health_pb2.HealthCheckRequest(), wait_for_ready=True, timeout=1.0)
                except grpc.RpcError:
                    continue
                if answer.status == health_pb2.HealthCheckResponse.SERVING:
                    return
                sleep(0.05)
        raise RuntimeError(f"{self._process.args!r} serves nothing after {START_SECONDS:.0f} s")

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        try:
            self._process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._directory.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def start_daemon() -> ServerProcess:
    """`radixd serve` with a pool that needs no memory."""
    directory, socket = _place()
    radixd = Path(sys.executable).with_name("radixd")
    pool = ["--geometry", "tiny", "--device", "meta", "--tokens", str(POOL_TOKENS)]
    return ServerProcess([str(radixd), "serve", "--socket", str(socket), "--metrics", "off", *pool], directory, socket)


def start_echo() -> ServerProcess:
    """The echo of echo_server.py."""
    directory, socket = _place()
    return ServerProcess([sys.executable, "-m", "bench.echo_server", str(socket)], directory, socket)


def _place() -> tuple["TemporaryDirectory[str]", Path]:
    directory = TemporaryDirectory(prefix="radixd-bench-")
    return directory, Path(directory.name) / "grpc.sock"
