"""`radixd check`: recount every page."""

import argparse
import sys

from radixd.server.cli.command import Commands, add_command
from radixd.server.cli.daemon_channel import TIMEOUT_S, add_target, admin


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "check", run, "recount every page and every lock; exit 1 on any violation")
    parser.add_argument("--pool", default="", help="one pool alone")
    add_target(parser)


def run(args: argparse.Namespace) -> int:
    """Print all violations, or what was checked."""
    from radixd.v1 import admin_pb2

    with admin(args.target) as stub:
        reply = stub.Check(admin_pb2.CheckRequest(pool=args.pool), timeout=TIMEOUT_S)
    for violation in reply.violations:
        print(violation, file=sys.stderr)
    if not reply.violations:
        print(f"the ledger adds up: {reply.checked_pages} pages, {reply.checked_nodes} nodes")
    return 1 if reply.violations else 0
