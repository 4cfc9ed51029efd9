"""Reading a running daemon twice: its metrics, and what its Admin service alone tells."""

import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from radixd.server.cli.daemon_channel import TIMEOUT_S, CommandError, daemon_channel
from radixd.server.cli.doctor_reading import Reading, check_same_daemon, chosen_pools
from radixd.server.cli.doctor_saved import scrape
from radixd.server.config import DEFAULT_METRICS
from radixd.server.doctor.evidence import NodeFacts, SessionFacts
from radixd.server.doctor.scrape import Scrape
from radixd.server.doctor.stopped import daemon_silent
from radixd.v1 import admin_pb2, admin_pb2_grpc

MAX_NODES = 20_000
"""Of a tree whose priorities are looked at; it is read in one step of the daemon's loop."""
PAGE_ID_BYTES = 4
EPOCH_TOLERANCE_S = 1e-3
"""A scrape's number has not the room for all nanoseconds."""
REDRAWS_PER_SECOND = 10


def read_live(target: str, where: Sequence[str], pool: str, seconds: float) -> Reading:
    """The daemon at `target`, whose metrics are at `where`, watched for so long; 0: read once.

    Where a scrape says that the daemon's loop does not answer, the daemon is asked nothing more. Raises CommandError.
    """
    if len(where) > 1:
        raise CommandError("--metrics: one address, that of the daemon at --target")
    url = where[0] if where else f"{DEFAULT_METRICS}"
    with daemon_channel(target) as channel:
        stub = admin_pb2_grpc.AdminStub(channel)
        now = _first_scrape(url, stub, pool)
        if daemon_silent(now):
            return _silent_reading(url, now)
        daemon = _occupancy(stub, pool)
        _check_same(daemon, now, url, target)
        before, span, began = None, f"counted since its start, {daemon.uptime_seconds:,.0f} s ago", time.monotonic()
        if seconds:
            _wait(seconds)
            before, now = now, scrape(url)
            check_same_daemon(before, now)
            if daemon_silent(now):
                return _silent_reading(url, now)
            span = f"counted over {seconds:g} s"
        watched = time.monotonic() - began if seconds else daemon.uptime_seconds
        pools = chosen_pools(now, pool)
        listed = stub.ListSessions(admin_pb2.ListSessionsRequest(pool=pool), timeout=TIMEOUT_S).sessions
        trees = {name: _tree(stub, name) for name in pools}
    sessions = {name: tuple(_session(it) for it in listed if it.pool == name) for name in pools}
    return Reading(f"{target}, {span}", pools, now, before, watched, sessions, trees)


def _first_scrape(url: str, stub: admin_pb2_grpc.AdminStub, pool: str) -> Scrape:
    """Before any call, which a loop that stands still would not answer."""
    try:
        return scrape(url)
    except CommandError:
        _occupancy(stub, pool)  # where there is no daemon at all, or no such pool, that is what to say
        raise


def _silent_reading(url: str, now: Scrape) -> Reading:
    """What such a scrape tells, which is of no pool; whose it is could not be asked."""
    return Reading(f"{url} alone: the event loop of the daemon there does not answer", (), now, None, None)


def _occupancy(stub: admin_pb2_grpc.AdminStub, pool: str) -> admin_pb2.OccupancyResponse:
    return stub.Occupancy(admin_pb2.OccupancyRequest(pool=pool), timeout=TIMEOUT_S)


def _check_same(daemon: admin_pb2.OccupancyResponse, now: Scrape, url: str, target: str) -> None:
    if abs(now.epoch - daemon.epoch / 1e9) > EPOCH_TOLERANCE_S:
        raise CommandError(f"the metrics at {url} are not those of the daemon at {target}: name its own with --metrics")


def _wait(seconds: float) -> None:
    """Watch, and show on a terminal for how long yet."""
    console = Console(stderr=True)
    if not console.is_terminal:
        print(f"radixd doctor: watching for {seconds:g} s", file=sys.stderr)
        time.sleep(seconds)
        return
    columns = TextColumn("watching"), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        task, began = progress.add_task("", total=seconds), time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            progress.update(task, completed=passed)
            time.sleep(min(1 / REDRAWS_PER_SECOND, seconds - passed))


def _tree(stub: admin_pb2_grpc.AdminStub, pool: str) -> tuple[NodeFacts, ...]:
    reply = stub.DumpTree(admin_pb2.DumpTreeRequest(pool=pool, max_nodes=MAX_NODES), timeout=TIMEOUT_S)
    return tuple(NodeFacts(len(it.pages) // PAGE_ID_BYTES, it.lock_ref > 0, it.priority) for it in reply.nodes)


def _session(info: admin_pb2.SessionInfo) -> SessionFacts:
    return SessionFacts(
        session_id=info.session_id,
        name=info.client_name,
        pids=tuple(info.pids),
        ended=info.ended,
        idle_seconds=info.idle_seconds,
        active_leases=info.active_leases,
        leased=info.leased_pages,
        reserved=info.reserved_pages,
        retired=info.retired_pages,
    )
