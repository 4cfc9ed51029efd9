"""The pool as its operator sees it, before and after a run."""

import time
from dataclasses import dataclass
from typing import Self

import grpc

from radixd.server.cli.daemon_channel import MESSAGE_BYTES, TIMEOUT_S, CommandError, address, explained
from radixd.v1 import admin_pb2, admin_pb2_grpc

CHECK_SECONDS = 300.0
"""A recount of a million pages takes its time."""

SETTLE_SECONDS = 10.0
"""How long ended sessions may take to give their pages back: the contract says a second."""


@dataclass(frozen=True, slots=True)
class TierLedger:
    """One tier after a run."""

    total: int
    free: int
    cached: int
    """Evictable pages. Free and cached ones are all there should be."""
    held: int
    """Protected, leased or retired, although everyone has left."""

    @property
    def balanced(self) -> bool:
        """Everything is given back."""
        return not self.held and self.free + self.cached == self.total

    def __add__(self, other: Self) -> Self:
        return type(self)(
            self.total + other.total, self.free + other.free, self.cached + other.cached, self.held + other.held
        )

    def __str__(self) -> str:
        return f"{self.free:,} free + {self.cached:,} cached + {self.held:,} held = {self.total:,}"


@dataclass(frozen=True, slots=True)
class Ledger:
    """A pool after a run, or several together. `host` is all 0 where there is no such tier."""

    device: TierLedger
    host: TierLedger
    leases: int
    violations: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Everything is given back, and every page and lock was recounted."""
        return self.device.balanced and self.host.balanced and not self.leases and not self.violations

    def __add__(self, other: Self) -> Self:
        return type(self)(
            self.device + other.device,
            self.host + other.host,
            self.leases + other.leases,
            self.violations + other.violations,
        )

    def __str__(self) -> str:
        return f"{'balanced' if self.ok else 'NOT balanced'}: {self.device}; {self.leases} leases"


class PoolAdmin:
    """The Admin service of one daemon, for one of its pools (empty: the only one)."""

    def __init__(self, target: str, pool: str) -> None:
        options = [("grpc.max_receive_message_length", MESSAGE_BYTES)]
        self._channel = grpc.insecure_channel(address(target), options)
        self._stub = admin_pb2_grpc.AdminStub(self._channel)
        self._target = target
        self._pool = pool

    def close(self) -> None:
        """Give up the connection."""
        self._channel.close()

    def occupancy(self) -> admin_pb2.PoolOccupancy:
        """The pool now. Raises CommandError where the daemon does not answer, or has several pools."""
        request = admin_pb2.OccupancyRequest(pool=self._pool)
        try:
            pools = self._stub.Occupancy(request, timeout=TIMEOUT_S).pools
        except grpc.RpcError as error:
            raise CommandError(explained(error, self._target)) from error
        if len(pools) != 1:
            raise CommandError(f"--pool: name one of {', '.join(pool.pool for pool in pools)}")
        return pools[0]

    def settled(self, sessions: int) -> admin_pb2.PoolOccupancy:
        """The pool when no more than `sessions` are left and no copy runs, or after SETTLE_SECONDS."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            pool = self.occupancy()
            busy = pool.sessions > sessions or pool.device.retired or pool.device.in_copy or pool.host.leased
            if not busy or time.monotonic() > deadline:
                return pool
            time.sleep(0.05)

    def ledger(self, pool: admin_pb2.PoolOccupancy) -> Ledger:
        """Recount everything."""
        reply = self._stub.Check(admin_pb2.CheckRequest(pool=self._pool), timeout=CHECK_SECONDS)
        device, host = pool.device, pool.host
        held = device.protected + device.leased + device.retired
        return Ledger(
            device=TierLedger(device.total, device.free, device.evictable, held),
            host=TierLedger(host.total, host.free, host.evictable, host.protected + host.leased),
            leases=pool.active_leases + pool.waiting_leases,
            violations=tuple(reply.violations),
        )
