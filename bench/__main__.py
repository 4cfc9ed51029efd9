"""python -m bench: every benchmark, as ratios against references measured in the same run."""

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic

from bench import table
from bench.copies import CopiesPart
from bench.rpc import RpcPart
from bench.served import start_daemon, start_echo
from bench.sglang_reference import peer
from bench.table import Row
from bench.tree import TreePart
from radixd.server.malloc import apply_malloc_settings

ROUNDS, QUICK_ROUNDS = 15, 5


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Ratios, each against its reference.")
    parser.add_argument("--only", choices=("tree", "grpc", "copies", "gpu"), help="one part alone; gpu runs only so")
    parser.add_argument("--quick", action="store_true", help="fewer turns and sizes: a first look")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every row there, too")
    return parser.parse_args()


def tree_rows(quick: bool) -> Iterator[Row]:
    """The tree part, with SGLang where it is installed."""
    sglang = peer.start()
    try:
        yield from TreePart(sglang, QUICK_ROUNDS if quick else ROUNDS, quick).rows()
    finally:
        if sglang is not None:
            sglang.close()


def rpc_rows(quick: bool) -> Iterator[Row]:
    """The gRPC part, against servers started for it."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    with start_daemon() as daemon, start_echo() as echo, RpcPart(daemon.socket, echo.socket, rounds) as part:
        yield from part.rows()


def copies_rows(quick: bool) -> Iterator[Row]:
    """The copies part, on memory of its own."""
    with CopiesPart(QUICK_ROUNDS if quick else ROUNDS) as part:
        yield from part.rows()


def gpu_rows(quick: bool) -> Iterator[Row]:
    """The GPU part, on the first card that is visible."""
    from bench.gpu import GpuPart

    with GpuPart(QUICK_ROUNDS if quick else ROUNDS) as part:
        yield from part.rows()


def main() -> None:
    """Measures, prints, and never fails for a number."""
    arguments = parse()
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # that a server says goodbye is no news
    apply_malloc_settings()  # as `radixd serve` does; every process started from here inherits it
    started = monotonic()
    parts: dict[str, Sequence[Row]] = {}
    if arguments.only in (None, "tree"):
        parts["tree"] = list(tree_rows(arguments.quick))
        table.show("Tree, in process; reference: SGLang", parts["tree"])
    if arguments.only in (None, "grpc"):
        parts["grpc"] = list(rpc_rows(arguments.quick))
        table.show("gRPC, over a Unix socket; reference: an echo of the same bytes", parts["grpc"])
    if arguments.only in (None, "copies"):
        parts["copies"] = list(copies_rows(arguments.quick))
        table.show("Copies between tiers; reference: one memcpy of the same bytes", parts["copies"])
    if arguments.only == "gpu":
        parts["gpu"] = list(gpu_rows(arguments.quick))
        table.show("Copies on and off a GPU; reference: one asynchronous copy of the same bytes", parts["gpu"])
    table.CONSOLE.print(f"{monotonic() - started:.0f} s")
    if arguments.json:
        table.write_json(arguments.json, parts)


if __name__ == "__main__":
    main()
