"""`radixd inspect`: what a state directory holds."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from radixd.server.cli.command import Commands, add_command

if TYPE_CHECKING:
    from radixd.server.journal.inspection import Inspection

EXAMPLES = """\
The daemon need not run. Checksums of pages are not verified; a start-up does that.

examples:
  radixd inspect /var/lib/radixd
  radixd inspect /var/lib/radixd/default --json | jq .[0].live_pages
"""


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands, "inspect", run, "show what a restart would find; exit 1 if any is unusable", EXAMPLES
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="a daemon's state directory, or one pool's in it")
    parser.add_argument("--json", action="store_true", help="for programs")


def run(args: argparse.Namespace) -> int:
    """Print every journal, or why it is unusable."""
    from radixd.server.journal.header import Unusable
    from radixd.server.journal.inspection import inspect_journal, journal_directories

    found: list[Inspection] = []
    failures: list[str] = []
    for directory in journal_directories(args.directory):
        try:
            found.append(inspect_journal(directory))
        except Unusable as reason:
            failures.append(f"{directory}: {reason}")
    if not found and not failures:
        failures.append(f"{args.directory}: no journal here, nor in a directory below")

    if args.json:
        print(json.dumps([inspection.to_dict() for inspection in found], indent=2))
    else:
        for inspection in found:
            _print(inspection)
    for failure in failures:
        print(f"radixd inspect: {failure}", file=sys.stderr)
    return 1 if failures else 0


def _print(found: "Inspection") -> None:
    from radixd.server.cli.output import print_table

    key = "token pairs" if found.element_bytes == 8 else "tokens"
    print(f"{found.path}: format {found.format}, {found.journal_bytes:,} bytes, begun by epoch {found.epoch}")
    print(f"  geometry {found.geometry}: pages of {found.page_size} {key}, {found.page_bytes:,} bytes")
    print(f"  {found.live_pages:,} of {found.host_pages:,} host pages are live: {found.live_bytes:,} bytes")
    if found.bad_record:
        print(f"  ends early at {found.bad_record}; the last {found.ignored_bytes:,} bytes do not count")
    print("  ended in order" if found.clean else "  not ended in order: the daemon runs, or was killed")
    rows = [(namespace.digest, _with_text(namespace.model), namespace.pages) for namespace in found.namespaces]
    if rows:
        print_table(("NAMESPACE", "MODEL", "PAGES"), rows)


def _with_text(model: str) -> str:
    """A digest in hex, and what it spells where it was made of text."""
    text = bytes.fromhex(model).decode("ascii", "replace")
    return f"{model} ({text})" if text and text.isascii() and text.isprintable() else model
