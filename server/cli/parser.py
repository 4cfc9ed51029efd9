"""The command line's grammar."""

import argparse
from importlib.metadata import version

from radixd.server.cli import (
    actions,
    check,
    config_check,
    doctor,
    health,
    inspect,
    plan,
    serve,
    sessions,
    status,
    top,
    tree,
)
from radixd.server.replay import cli as replay

EXAMPLES = """\
examples:
  radixd serve                                        a pool of 1 GiB in host memory, GLM-5.3's geometry
  radixd serve --config /etc/radixd.toml              what the file says
  radixd serve --geometry tiny --tokens 640000        one small pool
  radixd replay                                       a daemon and four schedulers on one pool, every byte checked
  radixd status                                       the daemon, its pools and their pages
  radixd status --json | jq '.pools[0].device'
  radixd top                                          the same and more, every second, until q
  radixd sessions                                     who is connected, and who holds pages
  radixd inspect /var/lib/radixd                      what a restart would find, without a daemon
  radixd plan --context 1M --gpu-memory 141GB         what fits, before anything is started
  radixd doctor --expect 1M                           why less fits, why it is refused or slow, from its numbers
  radixd config check /etc/radixd.toml                what a file means, or all its mistakes
"""

DESCRIPTION = "A node-level KV-cache service for LLM inference: one daemon owns the KV slot pools and the radix tree."


def build_parser() -> argparse.ArgumentParser:
    """All commands; each sets `run`, a function of the parsed arguments that returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="radixd",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"radixd {version('radixd')}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in (
        serve,
        replay,
        status,
        top,
        health,
        sessions,
        tree,
        check,
        actions,
        inspect,
        plan,
        doctor,
        config_check,
    ):
        module.add_parser(commands)
    return parser
