"""A scheduler with its worker in one process, to be killed: publishes a prompt on "left", or imports it to "right".

Run as a program: SOCKET publish|import. Says "done" when it has, then holds what it has until stdin ends.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np

from radixd.client import Client
from radixd.client.attach import Attachment

P = 64
PAGES = 6
MODEL = b"weights-1"


def prompt() -> np.ndarray:
    """One page more than is published."""
    return np.random.default_rng(7).integers(0, 2**32, (PAGES + 1) * P, dtype=np.uint32)


def fill(memory: Attachment, pages: np.ndarray) -> None:
    """Every byte of the prompt's pages, each unlike the others."""
    for at, page in enumerate(pages.tolist()):
        for rows in memory.views[0].layer_rows:
            rows[page] = at + 1


def holds(memory: Attachment, pages: np.ndarray) -> bool:
    """Whether `fill` has written these pages, or a copy of it has."""
    return all(
        bool((rows[page] == at + 1).all())
        for rows in memory.views[0].layer_rows
        for at, page in enumerate(pages.tolist())
    )


def start(socket: Path, what: str) -> subprocess.Popen[str]:
    """The program, once it has said "done"."""
    command = [sys.executable, __file__, str(socket), what]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "done\n"
    return process


def main() -> None:
    socket, what = sys.argv[1:]
    with Client(Path(socket)) as client:
        pool = "left" if what == "publish" else "right"
        session = client.open_session(model=MODEL, name=what, pool=pool)
        if what == "publish":
            lease = session.acquire(prompt()[: PAGES * P])
            fill(session.attach(), lease.pages)
            lease.insert(PAGES * P)
        else:
            session.attach()
            lease = session.acquire(prompt(), import_from_peers=True)
            assert lease.peer_tokens == PAGES * P
        print("done", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
