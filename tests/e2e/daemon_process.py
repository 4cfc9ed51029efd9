"""A real daemon in a process of its own, on sockets of its own."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from radixd.v1 import admin_pb2, admin_pb2_grpc, cache_pb2_grpc, session_pb2, session_pb2_grpc

COMMAND = (sys.executable, "-c", "import sys; from radixd.server.cli import main; sys.exit(main())")
PATIENCE_S = 200.0
"""A guard against a hang on a busy machine; nothing here measures time."""
MODEL = b"weights-1"
DEVICE = "RADIXD_TEST_DEVICE"
SERVING = health_pb2.HealthCheckResponse.SERVING


def eventually(holds: Callable[[], bool]) -> None:
    """Wait until it does."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.02)


def on_device(arguments: Sequence[str]) -> tuple[str, ...]:
    """The same, with GPUs in place of host memory where tests are to run on them."""
    kind = os.environ.get(DEVICE)
    before = ("", *arguments)
    return tuple(
        kind if kind and option == "--device" and value in ("cpu", "cpu_async") else value
        for option, value in zip(before, arguments, strict=False)
    )


def radixd(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    command = (*COMMAND, *on_device(arguments))
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


PATIENT = "[liveness]\nttl_seconds = 3600"


class DaemonProcess:
    """`radixd serve` with its log beside it.

    One pool of 100 pages, without memory unless `flags` say otherwise; with --config, what the file says. Else no
    session that never had a stream ends because its test is slow.
    """

    def __init__(self, folder: Path, *flags: str, name: str = "r.sock") -> None:
        self.socket = folder / name
        self.log = folder / f"{name}.log"
        command = (*COMMAND, "serve", "--socket", str(self.socket), "--metrics", "off")
        if "--config" not in flags:
            config = folder / "patient.toml"
            config.write_text(PATIENT)
            command = (*command, "--config", str(config), "--device", "meta", "--geometry", "tiny", "--tokens", "6400")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen((*command, *on_device(flags)), stderr=log)
        self.channel = grpc.insecure_channel(f"unix:{self.socket}")
        self.sessions = session_pb2_grpc.SessionsStub(self.channel)
        self.cache = cache_pb2_grpc.CacheStub(self.channel)
        self.admin = admin_pb2_grpc.AdminStub(self.channel)

    @property
    def attach_socket(self) -> Path:
        """Beside the gRPC socket."""
        return self.socket.with_name(f"{self.socket.name}.attach")

    def serving(self) -> "DaemonProcess":
        """This, once it serves."""
        eventually(lambda: self.health() == SERVING or self.process.poll() is not None)
        assert self.process.poll() is None, self.log.read_text()
        return self

    def health(self, service: str = "") -> int:
        """A ServingStatus; UNKNOWN where nobody answers."""
        stub = health_pb2_grpc.HealthStub(self.channel)
        try:
            return stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=5).status
        except grpc.RpcError:
            return health_pb2.HealthCheckResponse.UNKNOWN

    def open_session(self, client_name: str = "test") -> session_pb2.OpenSessionResponse:
        """A new session."""
        request = session_pb2.OpenSessionRequest(client_name=client_name, nonce=os.urandom(16), model=MODEL)
        return self.sessions.OpenSession(request, timeout=PATIENCE_S)

    def listed(self, session_id: int) -> admin_pb2.SessionInfo | None:
        """The session as operators see it; None once it is over and holds nothing."""
        reply = self.admin.ListSessions(admin_pb2.ListSessionsRequest(), timeout=PATIENCE_S)
        return next((item for item in reply.sessions if item.session_id == session_id), None)

    def ledger(self) -> tuple[int, int, int]:
        """(free, leased, retired) pages."""
        device = self.admin.Occupancy(admin_pb2.OccupancyRequest(), timeout=PATIENCE_S).pools[0].device
        assert device.total == device.free + device.evictable + device.protected + device.leased + device.retired
        return device.free, device.leased, device.retired

    def stop(self) -> None:
        """End it, whatever it is doing."""
        self.channel.close()
        self.process.kill()
        self.process.wait()
