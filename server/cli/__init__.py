"""The `radixd` command. Modules here import what is heavy, or may not be installed, only when a command runs."""

import os
import select
import sys
from collections.abc import Sequence

from radixd.server.cli.daemon_channel import CommandError
from radixd.server.cli.parser import build_parser
from radixd.server.malloc import apply_malloc_settings

ERROR = 1

READER_GONE = 128 + 13
"""As a shell reports a program that SIGPIPE ended."""

LAUNCHERS = ("serve", "replay")
"""Commands whose processes exchange large messages."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status: 0, 1 for what went wrong in one line on stderr, 2 for bad usage.

    141 where whoever read stdout wants no more."""
    args = build_parser().parse_args(argv)
    if args.command in LAUNCHERS and argv is None:
        apply_malloc_settings()
    try:
        status: int = args.run(args)
        sys.stdout.flush()
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("radixd"):
            raise
        extra = "otel" if (error.name or "").startswith("opentelemetry") else "server"
        text = f"the module {error.name} is missing: install radixd with its extra `{extra}`"
        text += f" (in a clone: pip install -e '.[{extra}]')"
        print(f"radixd {args.command}: {text}", file=sys.stderr)
        return ERROR
    except (
        CommandError,
        UnicodeEncodeError,
    ) as error:  # of an argument that is no text
        print(f"radixd {args.command}: {error}", file=sys.stderr)
        return ERROR
    except BrokenPipeError:
        if not _reader_is_gone():
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is buffered goes there at the end
        return READER_GONE
    return status


def _reader_is_gone() -> bool:
    """Of stdout, such as `head`: another pipe may have broken."""
    stdout = select.poll()
    stdout.register(sys.stdout.fileno(), 0)  # errors are told unasked
    return bool(stdout.poll(0))
