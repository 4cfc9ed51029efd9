"""`radixd top`: the status page in a terminal."""

import argparse
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from radixd.server.cli.command import Commands, add_command
from radixd.server.cli.daemon_channel import TIMEOUT_S, CommandError, add_target, admin
from radixd.server.cli.numbers import seconds

if TYPE_CHECKING:
    from radixd.server.cli.top_view import Sample
    from radixd.v1 import admin_pb2_grpc

MAX_NODES = 1_000
WIDTH = 160
"""Where it is not a terminal's."""


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "top", run, "watch pools, sessions and prefixes in the terminal; q quits")
    parser.add_argument("--pool", default="", help="one pool alone")
    parser.add_argument("--once", action="store_true", help="print it once, on any terminal or into a file")
    parser.add_argument(
        "--interval", type=seconds(0.1), default=1.0, metavar="S", help="between two readings (default: %(default)s)"
    )
    add_target(parser)


def run(args: argparse.Namespace) -> int:
    """Show it until q, or once."""
    from rich.console import Console

    from radixd.server.cli.top_view import view

    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    with admin(args.target) as stub:
        if args.once:
            console.print(view(_sample(stub, args.pool), None))
            return 0
        if not (console.is_terminal and sys.stdin.isatty()) or console.is_dumb_terminal:
            raise CommandError("this is no terminal that can be redrawn: give --once")
        _watch(stub, args.pool, args.interval)
    return 0


def _watch(stub: "admin_pb2_grpc.AdminStub", pool: str, interval: float) -> None:
    from rich.live import Live

    from radixd.server.cli.top_view import view

    previous: Sample | None = None
    with suppress(KeyboardInterrupt), _keys() as keyboard, Live(screen=True, auto_refresh=False) as live:
        while True:
            sample = _sample(stub, pool)
            live.update(view(sample, previous), refresh=True)
            previous = sample
            if _quits(keyboard, interval):
                return


def _sample(stub: "admin_pb2_grpc.AdminStub", pool: str) -> "Sample":
    from radixd.server.cli.top_view import Sample
    from radixd.v1 import admin_pb2

    occupancy = stub.Occupancy(admin_pb2.OccupancyRequest(pool=pool), timeout=TIMEOUT_S)
    sessions = stub.ListSessions(admin_pb2.ListSessionsRequest(pool=pool), timeout=TIMEOUT_S)
    trees = {
        item.pool: stub.DumpTree(admin_pb2.DumpTreeRequest(pool=item.pool, max_nodes=MAX_NODES), timeout=TIMEOUT_S)
        for item in occupancy.pools
    }
    return Sample(time.monotonic(), occupancy, sessions, trees)


@contextmanager
def _keys() -> Iterator[int]:
    """The keyboard, each key at once and unseen."""
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    tty.setcbreak(keyboard)
    try:
        yield keyboard
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _quits(keyboard: int, seconds: float) -> bool:
    """Wait for so long; whether q was pressed meanwhile, or the terminal has gone."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if select.select([keyboard], [], [], left)[0]:
            pressed = os.read(keyboard, 64)
            if not pressed or b"q" in pressed:
                return True
    return False
