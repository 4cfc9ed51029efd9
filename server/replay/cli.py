"""`radixd replay`: the command's flags. What is heavy is imported when it runs."""

import argparse
import sys
from pathlib import Path

from radixd.server.cli.command import Commands, add_command

EXAMPLES = """\
Without --trace: conversations from a seed, four schedulers, decode, kills, aborts, rejected drafts and preemptions, on
a CPU pool of 1 GiB with a host tier as large. With --trace: one scheduler, prompts only, no faults, on a pool without
memory that holds everything.

examples:
  radixd replay                                                     every byte checked, in a minute or two
  radixd replay --trace conversation_trace.jsonl                    the trace's hits, exactly
  radixd replay --trace conversation_trace.jsonl --pool-tokens 3000064 --policy lru
  radixd replay --trace conversation_trace.jsonl --requests 1000 --schedulers 8 --decode \\
      --device cpu_async --geometry tiny --pool-tokens 1280000 --kill-every 45
  radixd replay --geometry tiny --pool-tokens 12800 --host-pages 400 --preempt 20 --restart-every 100
  radixd replay --target /run/radixd/radixd.sock --requests 200     drive a daemon that runs already
"""


def add_parser(commands: Commands) -> None:
    """Add the command."""
    help_text = "drive a daemon as engines do, and check every byte"
    parser = add_command(commands, "replay", run, help_text, EXAMPLES)
    parser.add_argument("--trace", type=Path, metavar="FILE", help="a Mooncake-format trace")
    parser.add_argument("--requests", type=_requests, metavar="N|all", help="how many")
    parser.add_argument("--schedulers", type=_positive, metavar="N", help="processes that share the pool")
    parser.add_argument(
        "--decode", action=argparse.BooleanOptionalAction, default=None, help="generate each request's output too"
    )
    parser.add_argument("--seed", type=_count, metavar="N", help="of the conversations and the faults")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report as JSON")
    _add_pool_flags(parser)
    _add_fault_flags(parser)


def _add_pool_flags(parser: argparse.ArgumentParser) -> None:
    pool = parser.add_argument_group("the daemon")
    pool.add_argument("--target", metavar="SOCKET", help="a running one; else replay starts its own")
    pool.add_argument("--pool", metavar="NAME", help="one of the running daemon's pools")
    pool.add_argument("--geometry", metavar="NAME", help="what a slot is made of, as for `radixd serve`")
    pool.add_argument("--device", choices=("cpu", "cpu_async", "meta"), help="meta has no memory: no byte is checked")
    pool.add_argument("--pool-tokens", type=_positive, metavar="N", help="default: 1 GiB; on meta 100,000,000")
    pool.add_argument("--policy", metavar="NAME", help="what is evicted first")
    pool.add_argument("--layout", choices=("page_first", "layer_first"))
    pool.add_argument(
        "--host-pages", type=_count, metavar="N", help="of a host tier; 0: none; default: the pool's, with --trace none"
    )
    pool.add_argument("--write-policy", metavar="NAME", help="when pages go to the host; default: write_back")


def _add_fault_flags(parser: argparse.ArgumentParser) -> None:
    faults = parser.add_argument_group("faults")
    faults.add_argument(
        "--kill-every", type=_count, metavar="N", help="SIGKILL a scheduler each N requests, and replace it; 0: never"
    )
    faults.add_argument("--aborts", type=_count, metavar="N", help="requests that end half way, a step in flight")
    faults.add_argument("--rollbacks", type=_count, metavar="N", help="requests whose draft tokens are rejected")
    faults.add_argument("--reconnects", type=_count, metavar="N", help="streams that break and are resumed")
    faults.add_argument("--preempt", type=_count, metavar="N", help="requests offloaded half way, and restored")
    faults.add_argument(
        "--restart-every",
        type=_count,
        metavar="N",
        help="stop or kill the daemon, by turns, each N requests, and start another; 0: never",
    )


def run(args: argparse.Namespace) -> int:
    """Run it: 0 if every request ended and every byte and the ledger were right, 1 if not, 2 for bad flags."""
    from radixd.server.cli.daemon_channel import CommandError
    from radixd.server.replay.options import Options
    from radixd.server.replay.own_daemon import DaemonFailed
    from radixd.server.replay.run import replay

    try:
        options = Options.read(args)
        workload = options.workload.open()
        faults = options.choose_faults(workload)
    except (OSError, ValueError) as error:
        print(f"radixd replay: {error}", file=sys.stderr)
        return 2
    try:
        report = replay(options, workload, faults)
    except (CommandError, DaemonFailed) as error:
        print(f"radixd replay: {error}", file=sys.stderr)
        return 1
    report.print()
    if options.report is not None:
        options.report.write_text(report.to_json())
    return 0 if report.ok else 1


def _requests(text: str) -> int | str:
    return text if text == "all" else _positive(text)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError
    return value
