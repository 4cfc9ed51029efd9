"""A daemon of replay's own: started in a temporary directory, and stopped when the run is over."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count, cycle, repeat
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2

from radixd.gpu_pool.device import DeviceMemoryError

STOP_SECONDS = 30.0

PR_SET_PDEATHSIG = 1
"""Of prctl(2)."""

# Should replay be killed, which can stop nothing then, the kernel tells its daemon to stop.
_MAIN = f"""
import ctypes, signal, sys
ctypes.CDLL(None).prctl({PR_SET_PDEATHSIG}, signal.SIGTERM)
from radixd.server.cli import main
sys.exit(main())
"""


@dataclass(frozen=True, slots=True)
class PoolChoice:
    """Each of the daemon's pools, in the words of its configuration."""

    geometry: str
    device: str
    tokens: int
    policy: str
    layout: str
    host_tokens: int
    """Of its host tier; 0: none."""
    write_policy: str
    keep_state: bool
    """The host tier is to outlive the daemon."""


class DaemonFailed(Exception):
    """The daemon did not start or did not stop as it should; the message holds the end of its log."""


class OwnDaemon:
    """A daemon in a directory, started with the object. Its sockets and its state stay where they are at a restart."""

    def __init__(self, pool: PoolChoice, names: Sequence[str], directory: Path) -> None:
        self.socket = directory / "radixd.sock"
        config = directory / "radixd.toml"
        config.write_text(config_text(pool, names, directory, self.socket), encoding="utf-8")
        self._command = [sys.executable, "-c", _MAIN, "serve", f"--config={config}"]
        self._log = directory / "daemon.log"
        self._restarts = count(1)
        self._process = self._start()

    def wait_until_serving(self) -> None:
        """Raises DaemonFailed where it ends instead."""
        with grpc.insecure_channel(f"unix:{self.socket}", [("grpc.max_reconnect_backoff_ms", 100)]) as channel:
            check: grpc.UnaryUnaryMultiCallable[bytes, health_pb2.HealthCheckResponse] = channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                request_serializer=None,
                response_deserializer=health_pb2.HealthCheckResponse.FromString,
            )
            while self._process.poll() is None:
                with suppress(grpc.RpcError):  # not there yet
                    if check(b"").status == health_pb2.HealthCheckResponse.SERVING:
                        return
                time.sleep(0.05)
        raise DaemonFailed(f"the daemon did not start: {self._tail()}")

    def restart(self) -> None:
        """Tell it to stop, or, every second time, kill it; then start another. Raises DaemonFailed."""
        if next(self._restarts) % 2:
            self.stop()
        else:
            self._process.kill()
            self._process.wait()
        self._process = self._start()
        self.wait_until_serving()

    def stop(self) -> None:
        """Raises DaemonFailed where it has ended before, or not as it should."""
        early = self._process.poll()
        if early is not None:
            raise DaemonFailed(f"the daemon ended by itself, status {early}: {self._tail()}")
        self._process.terminate()
        try:
            status = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise DaemonFailed(f"the daemon did not stop within {STOP_SECONDS:.0f} s: {self._tail()}") from None
        if status:
            raise DaemonFailed(f"the daemon ended with status {status} when told to stop: {self._tail()}")

    def kill(self) -> None:
        """End it for sure."""
        self._process.kill()
        self._process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as output:
            # A ^C is for replay alone: it ends the schedulers first, then the daemon.
            return subprocess.Popen(self._command, stdout=output, stderr=output, start_new_session=True)

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-2_000:].strip()


@contextmanager
def own_daemon(pool: PoolChoice, names: Sequence[str]) -> Iterator[OwnDaemon]:
    """A daemon with such a pool of each name, that lives as long as the block.

    Raises DaemonFailed, whatever else went wrong: that follows from it."""
    with tempfile.TemporaryDirectory(prefix="radixd-replay-") as directory:
        daemon = OwnDaemon(pool, names, Path(directory))
        try:
            daemon.wait_until_serving()
            try:
                yield daemon
            finally:
                daemon.stop()
        finally:
            daemon.kill()


def config_text(pool: PoolChoice, names: Sequence[str], directory: Path, socket: Path) -> str:
    """TOML, whose strings and numbers are written as JSON's are."""
    daemon = {"socket": str(socket), "metrics": "off"}
    table: dict[str, str | int] = {
        "geometry": pool.geometry,
        "device": pool.device,
        "tokens": pool.tokens,
        "policy": pool.policy,
        "layout": pool.layout,
    }
    if pool.host_tokens:
        table |= {"host_tokens": pool.host_tokens, "write_policy": pool.write_policy}
        if pool.keep_state:
            daemon["state_dir"] = str(directory / "state")
    lines = _assignments(daemon)
    for name, place in zip(names, _places(pool.device), strict=False):
        lines += ["[[pools]]", *_assignments({"name": name, **table, **place})]
    return "\n".join(lines) + "\n"


def _places(device: str) -> Iterator[Mapping[str, list[str]]]:
    """Where each pool lies: on the GPUs in turn, as data-parallel ranks do. Raises DaemonFailed without any."""
    if device != "cuda":
        return repeat({})
    try:
        from radixd.gpu_pool.cuda.gpu import visible_gpus

        gpus = visible_gpus()
    except (ImportError, DeviceMemoryError) as error:
        raise DaemonFailed(str(error)) from error
    return cycle({"gpus": [gpu.uuid]} for gpu in gpus)


def _assignments(table: Mapping[str, str | int | list[str]]) -> list[str]:
    return [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in table.items()]
