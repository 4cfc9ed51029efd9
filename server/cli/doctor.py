"""`radixd doctor`: why is it as it is?"""

import argparse
import sys

from radixd.server.cli.command import Commands, add_command
from radixd.server.cli.daemon_channel import CommandError, add_target
from radixd.server.cli.numbers import seconds

SECONDS = 10.0
CANNOT_ASK = 2

EXAMPLES = """\
It reads a running daemon's ledgers, sessions, tree and metrics, changes nothing, and names causes with their numbers
and what to do next. Counters are taken over --seconds; 0 takes all since the daemon's start, without waiting. Exit
status: 0 where nothing was found, 1 where something was, 2 where nobody could be asked.

examples:
  radixd doctor
  radixd doctor --expect 1M                                   should hold one such request
  radixd doctor --expect preset=glm-5.3,gpu-memory=141GB,weights=90GB,fraction=0.9
  radixd doctor --expect glm-5.3 --seconds 60                 in its own bytes, what the model should hold
  radixd doctor --metrics saved.prom                          a scrape alone, counted since that daemon's start
  radixd doctor --metrics before.prom after.prom --json       what happened between two of them
"""


def add_parser(commands: Commands) -> None:
    """Add the command."""
    help_text = "name the cause of missing capacity, refusals, slow first tokens, slow decode and more"
    parser = add_command(commands, "doctor", run, help_text, EXAMPLES)
    parser.add_argument("--pool", default="", help="one pool alone")
    parser.add_argument(
        "--expect", metavar="WHAT",
        help="what the pool should hold: tokens, a preset, or flags of `radixd plan` as FLAG=VALUE with commas",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=seconds(0), default=SECONDS, metavar="S", help="to watch (default: %(default)s; 0: look once)"
    )
    parser.add_argument(
        "--metrics", nargs="+", metavar="FILE|URL",
        help="one or two saved scrapes to read instead of a daemon; or where the daemon's are "
        "(default: http://127.0.0.1:9464/metrics)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="for programs")
    add_target(parser)


def run(args: argparse.Namespace) -> int:
    """Print the findings: 0 without any, 1 with some, 2 where nobody can be asked."""
    from radixd.server.cli.doctor_expect import read_expectation
    from radixd.server.cli.doctor_live import read_live
    from radixd.server.cli.doctor_report import print_report, report_json
    from radixd.server.cli.doctor_saved import is_url, read_saved
    from radixd.server.doctor.examination import examine

    where = args.metrics or []
    try:
        expected = read_expectation(args.expect) if args.expect else None
        if where and not is_url(where[0]):
            reading = read_saved(where, args.pool)
        else:
            reading = read_live(args.target, where, args.pool, args.seconds)
    except (CommandError, ValueError) as error:
        for line in str(error).splitlines():
            print(f"radixd doctor: {line}", file=sys.stderr)
        return CANNOT_ASK
    except KeyboardInterrupt:
        print("radixd doctor: interrupted before the second scrape", file=sys.stderr)
        return CANNOT_ASK
    diagnoses = [examine(evidence) for evidence in reading.evidence(expected)]
    if args.json:
        print(report_json(reading, diagnoses))
    else:
        print_report(reading, diagnoses)
    return 1 if reading.silent or any(it.findings for it in diagnoses) else 0
