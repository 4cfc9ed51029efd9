"""`radixd flush | evict | snapshot | reap`: what an operator does to a pool."""

import argparse

from radixd.server.cli.command import Commands, add_command
from radixd.server.cli.daemon_channel import TIMEOUT_S, add_target, admin
from radixd.server.cli.numbers import positive

REAP_EXAMPLES = """\
Pages that the session's processes may still write are freed too: make sure first that none of them runs.

examples:
  radixd reap 7 sglang-0
"""


def add_parser(commands: Commands) -> None:
    """Add the four commands."""
    flush_parser = add_command(commands, "flush", flush, "empty the tree: nothing cached so far is matched again")
    evict_parser = add_command(commands, "evict", evict, "evict cached pages that nobody holds, in the policy's order")
    evict_parser.add_argument("pages", type=positive, help="how many, at most")
    text = "copy to the state directory what fits and is not there yet; a restart then finds it"
    snapshot_parser = add_command(commands, "snapshot", snapshot, text)
    for parser in (flush_parser, evict_parser, snapshot_parser):
        parser.add_argument("--pool", default="", help="needed where the daemon has several")
        add_target(parser)
    reap_parser = add_command(commands, "reap", reap, "end a session and free all of its pages", REAP_EXAMPLES)
    reap_parser.add_argument("session_id", type=positive, help="from `radixd sessions`")
    reap_parser.add_argument("client_name", help="its name, as a guard against a wrong id")
    add_target(reap_parser)


def flush(args: argparse.Namespace) -> int:
    """Empty the tree."""
    from radixd.v1 import admin_pb2

    with admin(args.target) as stub:
        reply = stub.Flush(admin_pb2.FlushRequest(pool=args.pool), timeout=TIMEOUT_S)
    print(
        f"generation {reply.generation}: {reply.freed_pages} pages freed, {reply.detached_pages} follow when unlocked"
    )
    return 0


def evict(args: argparse.Namespace) -> int:
    """Evict pages."""
    from radixd.v1 import admin_pb2

    with admin(args.target) as stub:
        reply = stub.Evict(admin_pb2.EvictRequest(pool=args.pool, pages=args.pages), timeout=TIMEOUT_S)
    print(f"{reply.evicted_pages} pages evicted")
    return 0


def snapshot(args: argparse.Namespace) -> int:
    """Make a snapshot; as long as it takes."""
    from radixd.v1 import admin_pb2

    with admin(args.target) as stub:
        reply = stub.Snapshot(admin_pb2.SnapshotRequest(pool=args.pool))
    print(f"{reply.host_pages} host pages stand in {reply.path}")
    return 0


def reap(args: argparse.Namespace) -> int:
    """End a session for good."""
    from radixd.v1 import admin_pb2

    request = admin_pb2.ReapRequest(session_id=args.session_id, client_name=args.client_name)
    with admin(args.target) as stub:
        reply = stub.Reap(request, timeout=TIMEOUT_S)
    print(f"session {args.session_id} is over: {reply.freed_pages} pages freed")
    return 0
