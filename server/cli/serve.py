"""`radixd serve`: the daemon."""

import argparse
import asyncio
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from radixd.gpu_pool.paths import default_socket
from radixd.server.cli.command import Commands, add_command
from radixd.server.cli.daemon_channel import CommandError

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

log = logging.getLogger(__name__)

CONFIG_FLAGS = ("socket", "tcp", "metrics", "log_format", "tracing", "drain_seconds", "state_dir")
POOL_FLAGS = (
    "geometry", "layout", "device", "devices", "gpus", "tokens", "bytes", "gpu_memory_fraction", "policy",
    "speculative", "max_context",
    "host_tokens", "host_bytes", "write_policy", "promote_min_pages", "free_target_pages", "copy_deadline_seconds",
)  # fmt: skip

EXAMPLES = """\
Flags replace what the file says; those of the pool need a file with one pool, or none. Defaults are those without a
file.

examples:
  radixd serve --bytes 64GiB --policy lru
  radixd serve --geometry /models/GLM-5.3/config.json --tokens 1100000 --max-context 1048576
  radixd serve --bytes 64GiB --host-bytes 256GiB --state-dir /var/lib/radixd
  radixd serve --device cuda --gpus GPU-5a3c2f10 --gpu-memory-fraction 0.9 --max-context 1048576
  radixd serve --geometry tiny --device meta --tokens 100000000 --socket /tmp/plan.sock --metrics off
"""


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "serve", run, "run the daemon in the foreground until SIGTERM", EXAMPLES)
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="TOML; see deploy/radixd.example.toml (default: none)"
    )
    parser.add_argument("--socket", metavar="PATH", help=f"the gRPC socket (default: {default_socket()})")
    parser.add_argument("--tcp", metavar="HOST:PORT", help="a second listener, on loopback (default: off)")
    parser.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        help="status page and metrics, or 'off' (default: 127.0.0.1:9464, or any port where that is taken)",
    )
    parser.add_argument("--log-format", metavar="KIND", help="text, or json: one object a line (default: text)")
    parser.add_argument("--tracing", metavar="KIND", help="otel: OpenTelemetry spans (default: off)")
    parser.add_argument("--drain-seconds", type=float, metavar="S", help="how long SIGTERM waits (default: 10)")
    parser.add_argument("--state-dir", metavar="DIR", help="host tiers outlive the daemon in it (default: off)")
    pool = parser.add_argument_group("the only pool")
    pool.add_argument("--geometry", metavar="NAME", help="a preset, a file or a config.json (default: glm-5.3)")
    pool.add_argument("--layout", metavar="KIND", help="page_first or layer_first (default: page_first)")
    pool.add_argument("--device", metavar="KIND", help="cpu, cuda, cpu_async or meta (default: cpu)")
    pool.add_argument(
        "--devices", type=int, metavar="N", help="that hold each slot: tensor-parallel ranks (default: 1)"
    )
    pool.add_argument(
        "--gpus",
        type=lambda names: names.split(","),
        metavar="UUID,...",
        help="of device cuda: which, as nvidia-smi -L prints them (default: the first --devices that are visible)",
    )
    pool.add_argument("--tokens", type=int, metavar="N", help="usable size in tokens; or --bytes")
    pool.add_argument("--bytes", metavar="SIZE", help="of one device's memory, such as 64GiB (default: 1GiB)")
    pool.add_argument(
        "--gpu-memory-fraction",
        type=float,
        metavar="F",
        help="of device cuda, instead: this share of what is free, the engine's scratch left aside",
    )
    pool.add_argument("--policy", metavar="NAME", help="what is evicted first: lru, lfu, ... (default: priority)")
    pool.add_argument("--speculative", metavar="MODE", help="none, bigram or drop_last_page (default: none)")
    pool.add_argument(
        "--max-context", type=int, metavar="N", help="refuse to start if such a request cannot fit (default: 0)"
    )
    host = parser.add_argument_group("the only pool's host tier")
    host.add_argument(
        "--host-tokens", type=int, metavar="N", help="its size; or --host-bytes (default: 0, no host tier)"
    )
    host.add_argument("--host-bytes", metavar="SIZE", help="its size in bytes, such as 256GiB")
    host.add_argument(
        "--write-policy",
        metavar="NAME",
        help="write_back, write_through or write_through_selective (default: write_back)",
    )
    host.add_argument(
        "--promote-min-pages", type=int, metavar="N", help="fewer host pages are computed, not copied (default: 2)"
    )
    host.add_argument(
        "--free-target-pages", type=int, metavar="N", help="device pages kept free by copying ahead (default: 1 in 32)"
    )
    host.add_argument(
        "--copy-deadline-seconds", type=float, metavar="S", help="log and count slower copies (default: 30)"
    )


def run(args: argparse.Namespace) -> int:
    """Run the daemon; 0 after a graceful end."""
    from radixd.server.config.file import read_config
    from radixd.server.config.table import ConfigError
    from radixd.server.daemon import Daemon, StartupError
    from radixd.server.log_lines import set_up_log

    try:
        config = read_config(args.config, _given(args, CONFIG_FLAGS), _given(args, POOL_FLAGS))
    except ConfigError as error:
        for line in error.errors:
            print(f"radixd serve: {line}", file=sys.stderr)
        return 2
    set_up_log(config.log_format)
    for pool in config.pools:
        for line in pool.crowded:
            log.warning("pool %s: %s", pool.name, line, extra={"pool": pool.name})

    async def live(tracer: "Tracer | None" = None) -> None:
        await Daemon(config, tracer).run()

    try:
        if config.tracing == "off":
            asyncio.run(live())
        else:
            with _tracing() as tracer:
                asyncio.run(live(tracer))
    except StartupError as error:
        print(f"radixd serve: {error}", file=sys.stderr)
        return 1
    return 0


@contextmanager
def _tracing() -> Iterator["Tracer"]:
    """OpenTelemetry's tracer, until the last spans are out."""
    from radixd.server.tracing import Tracing, TracingError

    try:
        spans = Tracing()
    except TracingError as error:
        raise CommandError(str(error)) from error
    try:
        yield spans.tracer
    finally:
        spans.close()


def _given(args: argparse.Namespace, names: tuple[str, ...]) -> dict[str, object]:
    """The flags that were given."""
    return {name: value for name in names if (value := getattr(args, name)) is not None}
