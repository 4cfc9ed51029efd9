"""`radixd status`: the daemon, its pools and their ledgers."""

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from radixd.server.cli.command import Commands, add_command
from radixd.server.cli.daemon_channel import TIMEOUT_S, add_target, admin

if TYPE_CHECKING:
    from radixd.v1 import admin_pb2

COLUMNS = (
    "pool", "geometry", "device", "policy", "pages", "free", "evictable", "protected", "leased", "retired",
    "sessions", "leases", "hit rate",
)  # fmt: skip


HOST_COLUMNS = (
    "host tier of", "policy", "pages", "free", "evictable", "protected", "leased", "demoted", "skipped", "promoted",
    "offloaded", "restored", "failed", "host hits", "journal",
)  # fmt: skip


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "status", run, "show the daemon, its pools and their pages")
    parser.add_argument("--pool", default="", help="one pool alone")
    parser.add_argument("--json", action="store_true", help="every figure, as JSON")
    add_target(parser)


def run(args: argparse.Namespace) -> int:
    """Print the daemon's occupancy."""
    from radixd.server.cli.output import print_json, print_table
    from radixd.v1 import admin_pb2

    with admin(args.target) as stub:
        reply = stub.Occupancy(admin_pb2.OccupancyRequest(pool=args.pool), timeout=TIMEOUT_S)
    if args.json:
        print_json(reply)
        return 0
    print(f"radixd {reply.server_version}, up {_duration(reply.uptime_seconds)}, epoch {reply.epoch}")
    print_table(COLUMNS, _rows(reply))
    hosts = list(_host_rows(reply))
    if hosts:
        print()
        print_table(HOST_COLUMNS, hosts)
    return 0


def _rows(reply: "admin_pb2.OccupancyResponse") -> Iterator[tuple[str | int, ...]]:
    for pool in reply.pools:
        ledger = pool.device
        rate = f"{pool.hit_tokens / pool.requested_tokens:.1%}" if pool.requested_tokens else "-"
        yield (
            pool.pool, pool.geometry, f"{pool.devices} x {pool.device_kind}", pool.policy, ledger.total, ledger.free,
            ledger.evictable, ledger.protected, ledger.leased, ledger.retired,
            pool.sessions, pool.active_leases + pool.waiting_leases, rate,
        )  # fmt: skip


def _host_rows(reply: "admin_pb2.OccupancyResponse") -> Iterator[tuple[str | int, ...]]:
    for pool in reply.pools:
        ledger = pool.host
        if ledger.total:
            rate = f"{pool.host_hit_tokens / pool.requested_tokens:.1%}" if pool.requested_tokens else "-"
            yield (
                pool.pool, pool.write_policy, ledger.total, ledger.free, ledger.evictable, ledger.protected,
                ledger.leased, pool.demoted_pages, pool.demote_skipped_pages, pool.promoted_pages,
                pool.offloaded_pages, pool.restored_pages, pool.failed_copy_pages, rate, pool.journal or "-",
            )  # fmt: skip


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s" if minutes else f"{rest}s"
