"""What the daemon is told to be: one frozen object, valid by construction."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from radixd.gpu_pool.handle import DeviceKind
from radixd.gpu_pool.layout import Layout
from radixd.gpu_pool.paths import attach_socket, default_socket
from radixd.server.cache.config import WritePolicy
from radixd.server.cache.speculative import Speculative
from radixd.server.log_lines import LogFormat
from radixd.server.sessions.limits import Limits
from radixd.server.sessions.liveness import Liveness

MESSAGE_BYTES_CAP = 64 * 2**20
"""No configuration allows larger gRPC messages."""


@dataclass(frozen=True)
class HostTierConfig:
    """A pool's host tier; none where `pages` is 0."""

    pages: int = 0
    write_policy: WritePolicy = WritePolicy.WRITE_BACK
    promote_min_pages: int = 2
    """A hit with fewer pages on the host is computed rather than copied."""
    free_target_pages: int = 0
    """Device pages that are kept free by copying the coldest to the host ahead of need."""
    max_copy_pages: int = 4_096
    """Under copies to the host at once; beyond it, eviction drops."""
    state_dir: Path | None = None
    """Where the tier and its journal outlive the daemon; None: nowhere."""


@dataclass(frozen=True)
class PoolConfig:
    """One pool. `layout` holds its geometry and usable pages; each of `devices` carries that layout once."""

    name: str
    layout: Layout
    device_kind: DeviceKind
    devices: int
    gpus: tuple[str, ...]
    """Device kind cuda: the UUID of each device, or its beginning; none: the first that the daemon sees."""
    policy: str
    speculative: Speculative
    max_context: int
    """Tokens of the longest request that must fit; 0: not asked for."""
    copy_deadline_seconds: float
    """A copy that takes longer is logged and counted. It is never given up: it may still write."""
    host: HostTierConfig
    import_min_pages: int = 4
    """Fewer pages more than the pool has itself are computed, not imported from another pool. See CacheConfig."""
    unsized: str = ""
    """Why it cannot be served: its size, a share of GPU memory, is not known here, or too small for `max_context`."""
    crowded: tuple[str, ...] = ()
    """Of such a size: a line for each GPU that somebody else uses. For the log, which this configuration sets up."""

    @property
    def usable_tokens(self) -> int:
        """What the pool can hold, page 0 left out."""
        return self.layout.num_pages * self.layout.geometry.page_size


@dataclass(frozen=True)
class Address:
    """A TCP address on the loopback interface; port 0 lets the kernel choose."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


TracingKind = Literal["off", "otel"]

DEFAULT_METRICS = Address("127.0.0.1", 9464)
"""The one address that gives way to a free port where it is taken: nobody asked for it."""


@dataclass(frozen=True)
class Config:
    """The whole daemon."""

    pools: tuple[PoolConfig, ...]
    socket: Path = field(default_factory=default_socket)
    tcp: Address | None = None
    """A second gRPC listener, without encryption and therefore on loopback alone."""
    metrics: Address | None = DEFAULT_METRICS
    """Where the status page, health and Prometheus's metrics are; None: nowhere."""
    log_format: LogFormat = "text"
    tracing: TracingKind = "off"
    """otel: a span for every Batch, exported as OpenTelemetry's environment variables say."""
    drain_seconds: float = 10.0
    """How long SIGTERM waits for calls in flight."""
    memory_wait_seconds: float = 60.0
    """How long start-up waits for GPU memory that others hold, such as clients of a daemon that was killed."""
    state_dir: Path | None = None
    """Each pool with a host tier has a directory in it; None: host tiers end with the daemon."""
    limits: Limits = field(default_factory=Limits)
    liveness: Liveness = field(default_factory=Liveness)

    @property
    def attach_socket(self) -> Path:
        """The Unix socket that hands out pool memory."""
        return attach_socket(self.socket)

    @property
    def lock_file(self) -> Path:
        """The file whose lock says that a daemon owns the sockets."""
        return self.socket.with_name(f"{self.socket.name}.lock")

    @property
    def state_lock_file(self) -> Path | None:
        """The file whose lock says that a daemon owns the state directory."""
        return self.state_dir / ".lock" if self.state_dir else None
