"""Daemons in trouble, for `radixd doctor` to find the cause.

    python scripts/doctor_situations.py starved            set it up, ask the doctor, leave with its exit status
    python scripts/doctor_situations.py starved --json     flags that follow are the doctor's
    python scripts/doctor_situations.py starved --hold     leave it running until a line comes on stdin

Each has a daemon of its own, in a temporary directory, whose pool has GLM-5.3's geometry and no memory.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from radixd.client import Client, NoPages, Session
from radixd.gpu_pool.budget.cost import with_index_layers
from radixd.gpu_pool.presets import load_geometry

RADIXD = (sys.executable, "-c", "import sys; from radixd.server.cli import main; sys.exit(main())")
START_SECONDS = 60.0
K, M = 2**10, 2**20
MORE_LAYERS = 39


class Daemon(NamedTuple):
    """A running one."""

    socket: Path
    metrics: str


class Situation(NamedTuple):
    """What to start, what to do to it, and how to ask."""

    serve: Callable[[Path], tuple[str, ...]]
    """Flags, given the daemon's directory."""
    arrange: Callable[[Daemon, ExitStack], None]
    """Sessions that it leaves open end with the stack."""
    ask: tuple[str, ...] = ()


def nothing(daemon: Daemon, running: ExitStack) -> None:
    """The pool's size is all that matters."""


def wrong_layers(directory: Path) -> tuple[str, ...]:
    """A pool whose checkpoint's config was misread: more index layers than it has."""
    geometry = directory / "misread.json"
    geometry.write_text(json.dumps(with_index_layers(load_geometry("glm-5.3"), MORE_LAYERS).to_dict()))
    return ("--geometry", str(geometry), "--bytes", "100GB")


def starve(daemon: Daemon, running: ExitStack) -> None:
    """One request has reserved nearly all; another long one is refused at each try, and short ones pass."""
    greedy, patient, chat = (session(daemon, running, name) for name in ("greedy", "patient", "chat"))
    greedy.acquire(prompt(0, 8 * K), reserve_to=M)
    for turn in range(1, 6):
        chat.acquire(prompt(turn, 2 * K)).release()
        try:
            patient.acquire(prompt(99, 512 * K))
        except NoPages:
            continue
        raise AssertionError("there was room for it")


def hit_seldom(daemon: Daemon, running: ExitStack) -> None:
    """One long prompt comes again and again, and most others share nothing."""
    engine = session(daemon, running, "engine")
    for _ in range(4):
        publish(engine, prompt(0, 128 * K))
    for user in range(1, 10):
        publish(engine, prompt(user, 4 * K))


def hit_short_of_the_end(daemon: Daemon, running: ExitStack) -> None:
    """Everybody shares a document, and asks with nearly as much behind it."""
    engine = session(daemon, running, "engine")
    document = prompt(0, 64 * K)
    publish(engine, document)
    for user in range(1, 9):
        publish(engine, np.concatenate((document, prompt(user, 48 * K))))


def decode_long(daemon: Daemon, running: ExitStack) -> None:
    """Ten requests over one long document: its pages are there once, and each decode step reads them ten times."""
    engine = session(daemon, running, "engine")
    document = prompt(0, M - K)
    publish(engine, document)
    for user in range(1, 11):
        engine.acquire(np.concatenate((document, prompt(user, 256))), reserve_to=M)


def replay(daemon: Daemon, running: ExitStack) -> None:
    """What engines do, all of it checked."""
    command = (*RADIXD, "replay", "--target", str(daemon.socket), "--requests", "60", "--schedulers", "2")
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


SITUATIONS: Mapping[str, Situation] = {
    "wrong-layers": Situation(wrong_layers, nothing, ("--expect", "preset=glm-5.3,bytes=100GB")),
    "starved": Situation(lambda _: ("--tokens", "1100032"), starve),
    "seldom-hits": Situation(lambda _: ("--tokens", "1100032"), hit_seldom),
    "long-suffixes": Situation(lambda _: ("--tokens", "1100032"), hit_short_of_the_end),
    "long-decode": Situation(lambda _: ("--tokens", "1100032"), decode_long, ("--expect", "1M")),
    "healthy": Situation(
        lambda _: ("--geometry", "tiny", "--device", "cpu", "--tokens", "64000", "--host-tokens", "64000"),
        replay,
        ("--expect", "tiny"),
    ),
}


def session(daemon: Daemon, running: ExitStack, name: str) -> Session:
    """A scheduler that stays until the end."""
    client = running.enter_context(Client(daemon.socket))
    return running.enter_context(client.open_session(model=b"glm-5.3", name=name))


def prompt(seed: int, length: int) -> "np.ndarray[tuple[int], np.dtype[np.uint32]]":
    """Tokens of which no two seeds share a page."""
    return np.random.default_rng(seed).integers(0, 150_000, length, dtype=np.uint32)


def publish(engine: Session, tokens: "np.ndarray[tuple[int], np.dtype[np.uint32]]") -> None:
    """A whole request that decodes nothing."""
    lease = engine.acquire(tokens)
    lease.insert(written=len(tokens))
    lease.release()


@contextmanager
def running_daemon(flags: tuple[str, ...], directory: Path) -> Iterator[Daemon]:
    """`radixd serve` with its metrics on a free port, once it serves."""
    socket, log = directory / "r.sock", directory / "log"
    command = (*RADIXD, "serve", "--socket", str(socket), "--metrics", "127.0.0.1:0", "--device", "meta", *flags)
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            given_up = time.monotonic() + START_SECONDS
            while " serving " not in log.read_text():
                if process.poll() is not None or time.monotonic() > given_up:
                    raise RuntimeError(f"the daemon did not start: {log.read_text()}")
                time.sleep(0.05)
            found = re.search(r"metrics on (\S+)", log.read_text())
            assert found
            yield Daemon(socket, found[1])
        finally:
            process.terminate()


def main() -> int:
    """Set one up and ask."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("situation", choices=SITUATIONS)
    parser.add_argument("--hold", action="store_true", help="print how to ask, and wait for a line on stdin")
    args, more = parser.parse_known_args()
    situation = SITUATIONS[args.situation]
    with ExitStack() as running:
        directory = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="rxdoc")))
        daemon = running.enter_context(running_daemon(situation.serve(directory), directory))
        situation.arrange(daemon, running)
        flags = ("--target", str(daemon.socket), "--metrics", daemon.metrics, "--seconds", "0", *situation.ask, *more)
        if args.hold:
            print("radixd doctor", *flags, flush=True)
            sys.stdin.readline()
            return 0
        return subprocess.run((*RADIXD, "doctor", *flags), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
