"""`radixd sessions`: who is connected, and who holds pages."""

import argparse

from radixd.server.cli.command import Commands, add_command
from radixd.server.cli.daemon_channel import TIMEOUT_S, add_target, admin

COLUMNS = (
    "session", "pool", "name", "pids", "state", "silent s", "launched", "completed", "active", "waiting",
    "leased", "reserved", "retired",
)  # fmt: skip


NOTES = """\
"silent s" counts from the last Batch or KeepAlive. A stream that is open never expires: one that is silent with steps
launched and not completed, or with active leases, is a scheduler that hangs or is stopped. Let it go on, end its
processes, or, if they are sure not to touch the pool, `radixd reap` it.
"""


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "sessions", run, "list sessions, and what each of them holds", NOTES)
    parser.add_argument("--pool", default="", help="one pool alone")
    parser.add_argument("--json", action="store_true", help="as JSON")
    add_target(parser)


def run(args: argparse.Namespace) -> int:
    """Print the sessions."""
    from radixd.server.cli.output import print_json, print_table
    from radixd.v1 import admin_pb2

    with admin(args.target) as stub:
        reply = stub.ListSessions(admin_pb2.ListSessionsRequest(pool=args.pool), timeout=TIMEOUT_S)
    if args.json:
        print_json(reply)
        return 0
    rows = [
        (
            item.session_id, item.pool, repr(item.client_name), " ".join(map(str, item.pids)) or "-",
            "ended" if item.ended else "streaming" if item.streaming else "no stream", round(item.idle_seconds, 1),
            item.launched, item.completed, item.active_leases, item.waiting_leases,
            item.leased_pages, item.reserved_pages, item.retired_pages,
        )
        for item in reply.sessions
    ]  # fmt: skip
    print_table(COLUMNS, rows)
    return 0
