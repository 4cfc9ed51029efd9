"""A daemon of replay's own: started in a temporary directory, and stopped when the run is over."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from radixd.v1 import admin_pb2, admin_pb2_grpc

STOP_SECONDS = 30.0

_MAIN = "import sys; from radixd.server.cli import main; sys.exit(main())"


@dataclass(frozen=True, slots=True)
class PoolChoice:
    """The daemon's only pool, as `radixd serve` takes it."""

    geometry: str
    device: str
    tokens: int
    policy: str
    layout: str


class DaemonFailed(Exception):
    """The daemon did not start or did not stop as it should; the message holds the end of its log."""


@contextmanager
def own_daemon(pool: PoolChoice) -> Iterator[str]:
    """The socket of a daemon that lives as long as the block. Raises DaemonFailed."""
    with tempfile.TemporaryDirectory(prefix="radixd-replay-") as directory:
        socket, log = Path(directory, "radixd.sock"), Path(directory, "daemon.log")
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", _MAIN, "serve", *_flags(pool, socket)],
                stdout=output,
                stderr=output,
                # A ^C is for replay alone: it ends the schedulers first, then the daemon.
                start_new_session=True,
            )
        try:
            _wait_until_serving(process, socket)
            yield str(socket)
        finally:
            early = process.poll()
            status = _stop(process)
            if early is not None:  # whatever else went wrong follows from this
                raise DaemonFailed(f"the daemon ended by itself, status {early}: {_tail(log)}")
        if status:
            raise DaemonFailed(f"the daemon ended with status {status} when told to stop: {_tail(log)}")


def _stop(process: subprocess.Popen[bytes]) -> int:
    process.terminate()
    try:
        return process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _wait_until_serving(process: subprocess.Popen[bytes], socket: Path) -> None:
    with grpc.insecure_channel(f"unix:{socket}", [("grpc.max_reconnect_backoff_ms", 100)]) as channel:
        admin = admin_pb2_grpc.AdminStub(channel)
        while process.poll() is None:
            try:
                admin.Occupancy(admin_pb2.OccupancyRequest())
                return
            except grpc.RpcError:  # not there yet, or still starting
                time.sleep(0.05)
    raise DaemonFailed("the daemon did not start")


def _flags(pool: PoolChoice, socket: Path) -> list[str]:
    return [
        f"--socket={socket}",
        "--metrics=off",
        f"--geometry={pool.geometry}",
        f"--device={pool.device}",
        f"--tokens={pool.tokens}",
        f"--policy={pool.policy}",
        f"--layout={pool.layout}",
    ]


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2_000:].strip()
