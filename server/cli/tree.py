"""`radixd tree`: the nodes of a pool's radix tree."""

import argparse

from radixd.server.cli.command import Commands, add_command
from radixd.server.cli.daemon_channel import TIMEOUT_S, add_target, admin
from radixd.server.cli.numbers import UINT32, whole

COLUMNS = ("node", "parent", "namespace", "from token", "tokens", "pages", "host", "locks", "keeps", "priority", "hits")
PAGE_ID_BYTES = 4


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "tree", run, "show a pool's radix tree, parents first")
    parser.add_argument("--pool", default="", help="needed where the daemon has several")
    parser.add_argument(
        "--max-nodes", type=whole(1, UINT32), default=1000, metavar="N", help="at most (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="as JSON, page ids included")
    add_target(parser)


def run(args: argparse.Namespace) -> int:
    """Print the nodes."""
    from radixd.server.cli.output import print_json, print_table
    from radixd.v1 import admin_pb2

    with admin(args.target) as stub:
        reply = stub.DumpTree(admin_pb2.DumpTreeRequest(pool=args.pool, max_nodes=args.max_nodes), timeout=TIMEOUT_S)
    if args.json:
        print_json(reply)
        return 0
    rows = [
        (
            node.id, node.parent, node.namespace, node.start_token, node.tokens, len(node.pages) // PAGE_ID_BYTES,
            len(node.host_pages) // PAGE_ID_BYTES, node.lock_ref, node.keep_ref, node.priority, node.hits,
        )
        for node in reply.nodes
    ]  # fmt: skip
    print_table(COLUMNS, rows)
    if reply.total_nodes > len(reply.nodes):
        print(f"{len(reply.nodes)} of {reply.total_nodes} nodes; --max-nodes shows more")
    return 0
