"""`radixd replay`: the command's flags. What is heavy is imported when it runs."""

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn, get_args

from radixd.gpu_pool.handle import DeviceKind
from radixd.gpu_pool.paths import default_socket
from radixd.server.cli.command import Commands, add_command
from radixd.server.cli.numbers import count, positive

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
  radixd replay --pools 2 --geometry tiny --pool-tokens 12800       two data-parallel ranks, each with its own cache;
                                                    with --import-from-peers each borrows what the other one holds
  radixd replay --target --requests 200                             drive the daemon that runs already
"""


def add_parser(commands: Commands) -> None:
    """Add the command."""
    help_text = "drive a daemon as engines do, and check every byte"
    parser = add_command(commands, "replay", run, help_text, EXAMPLES)
    parser.add_argument("--trace", type=Path, metavar="FILE", help="a Mooncake-format trace")
    parser.add_argument("--requests", type=_requests, metavar="N|all", help="how many (default: 420; of a trace: all)")
    parser.add_argument(
        "--schedulers",
        type=positive,
        metavar="N",
        help="processes, spread over the pools (default: 4; with --trace 1 a pool)",
    )
    parser.add_argument(
        "--decode",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="generate each request's output too (default: yes; with --trace no)",
    )
    parser.add_argument("--seed", type=count, metavar="N", help="of the conversations and the faults (default: 0)")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report as JSON")
    _add_pool_flags(parser)
    _add_fault_flags(parser)


def _add_pool_flags(parser: argparse.ArgumentParser) -> None:
    pool = parser.add_argument_group("the daemon")
    pool.add_argument(
        "--target", metavar="SOCKET", nargs="?", const=str(default_socket()),
        help="a running one, without SOCKET at %(const)s (default: replay starts its own)",
    )  # fmt: skip
    pool.add_argument(
        "--pool",
        metavar="NAME[,NAME]",
        help="of the running daemon's pools, which share the schedulers (default: the only one)",
    )
    pool.add_argument(
        "--pools",
        type=positive,
        metavar="N",
        help="equal ones, each of the size below: data-parallel ranks (default: 1)",
    )
    pool.add_argument(
        "--import-from-peers",
        action="store_true",
        help="copy a longer prefix from another pool of the daemon rather than compute it",
    )
    pool.add_argument("--geometry", metavar="NAME", help="as for `radixd serve` (default: glm-5.3)")
    pool.add_argument(
        "--device", choices=get_args(DeviceKind),
        help="meta has no memory: no byte is checked (default: cpu; with --trace meta)",
    )  # fmt: skip
    pool.add_argument(
        "--pool-tokens", type=positive, metavar="N", help="(default: what 1 GiB holds; on meta 100,000,000)"
    )
    pool.add_argument("--policy", metavar="NAME", help="what is evicted first (default: priority)")
    pool.add_argument("--layout", choices=("page_first", "layer_first"), help="(default: page_first)")
    pool.add_argument(
        "--host-pages",
        type=count,
        metavar="N",
        help="of a host tier; 0: none (default: as many as the pool's; with --trace or on meta 0)",
    )
    pool.add_argument("--write-policy", metavar="NAME", help="when pages go to the host (default: write_back)")


def _add_fault_flags(parser: argparse.ArgumentParser) -> None:
    text = "Defaults are for 420 requests of the conversations: fewer requests have fewer; a trace has none."
    faults = parser.add_argument_group("faults", text)
    faults.add_argument(
        "--kill-every",
        type=count,
        metavar="N",
        help="SIGKILL a scheduler each N requests, and replace it; 0: never (default: 150)",
    )
    faults.add_argument("--aborts", type=count, metavar="N", help="requests that end half way (default: 10)")
    faults.add_argument("--rollbacks", type=count, metavar="N", help="requests whose drafts are rejected (default: 10)")
    faults.add_argument("--reconnects", type=count, metavar="N", help="streams that break and are resumed (default: 4)")
    faults.add_argument(
        "--preempt", type=count, metavar="N", help="requests offloaded half way, and restored (default: 10)"
    )
    faults.add_argument(
        "--restart-every",
        type=count,
        metavar="N",
        help="stop or kill the daemon, by turns, each N requests, and start another; 0: never (default: 0)",
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
        if options.report is not None:
            options.report.open("a").close()  # so that no long run is for nothing
    except (OSError, ValueError) as error:
        print(f"radixd replay: {error}", file=sys.stderr)
        return 2
    # Else the daemon and the schedulers, which hear of no signal to this process, would go on without it.
    before = signal.signal(signal.SIGTERM, _end)
    try:
        report = replay(options, workload, faults)
    except (CommandError, DaemonFailed) as error:
        print(f"radixd replay: {error}", file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)
    report.print()
    if options.report is not None:
        options.report.write_text(report.to_json())
    return 0 if report.ok else 1


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _requests(text: str) -> int | str:
    return text if text == "all" else positive(text)
