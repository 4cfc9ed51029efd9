"""`radixd config check`: what a configuration file means, or all its mistakes."""

import argparse
import sys
from pathlib import Path

from radixd.server.cli.command import Commands, add_command


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "config", run, "check a configuration file")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    check = add_command(verbs, "check", run, "print the resolved configuration, or every mistake; exit 2 on any")
    check.add_argument("file", type=Path, nargs="?", help="a TOML file (default: none, the built-in configuration)")


def run(args: argparse.Namespace) -> int:
    """Print the configuration as the daemon would take it."""
    from radixd.server.config.file import read_config
    from radixd.server.config.table import ConfigError
    from radixd.server.config.text import config_text

    try:
        config = read_config(args.file)
    except ConfigError as error:
        prefix = f"{args.file}: " if args.file else ""
        for line in error.errors:  # a file that cannot be read is named already
            print(line if line.startswith(prefix) else prefix + line, file=sys.stderr)
        return 2
    print(config_text(config), end="")
    return 0
