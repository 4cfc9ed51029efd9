"""The `radixd` command. Modules here import what is heavy, or may not be installed, only when a command runs."""

import sys
from collections.abc import Sequence

from radixd.server.cli.daemon_channel import CommandError
from radixd.server.cli.parser import build_parser
from radixd.server.malloc import apply_malloc_settings

ERROR = 1

LAUNCHERS = ("serve", "replay")
"""Commands whose processes exchange large messages."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status: 0, 1 for what went wrong in one line on stderr, 2 for bad usage."""
    args = build_parser().parse_args(argv)
    if args.command in LAUNCHERS and argv is None:
        apply_malloc_settings()
    try:
        status: int = args.run(args)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("radixd"):
            raise
        extra = "otel" if (error.name or "").startswith("opentelemetry") else "server"
        text = f"the module {error.name} is missing: pip install 'radixd[{extra}]'"
        print(f"radixd {args.command}: {text}", file=sys.stderr)
        return ERROR
    except CommandError as error:
        print(f"radixd {args.command}: {error}", file=sys.stderr)
        return ERROR
    return status
