"""The benchmark's side of the reference process: starts it, opens cases in it and samples them.

Both sides take turns (radixd, reference, radixd, …) in one run, so that whatever the machine does hits both.
"""

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import TypedDict

ROOT = Path(__file__).resolve().parents[2]
INTERPRETER = ROOT / ".venv-sglang" / "bin" / "python"


class Answer(TypedDict, total=False):
    """What the process may answer; child.py says which verb answers what."""

    error: str
    sglang: str
    torch: str
    trees: list[str]
    id: int
    ns: list[int]
    bytes: float
    requests: int
    prompt_tokens: int
    hit_tokens: int
    refused: int
    cached_pages: int
    seconds: float


class PeerError(RuntimeError):
    """The reference process refused a request, or ended."""


class PeerCase:
    """One operation set up in the reference process."""

    def __init__(self, peer: "SglangPeer", number: int) -> None:
        self._peer = peer
        self._number = number

    def sample(self, repeats: int) -> list[int]:
        """Nanoseconds of `repeats` runs, timed inside the reference process."""
        return self._peer.ask("sample", id=self._number, repeats=repeats)["ns"]

    def close(self) -> None:
        """Frees the case's tree."""
        self._peer.ask("close", id=self._number)


class SglangPeer:
    """A reference process, ended by `close` or at the end of a `with` block."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [INTERPRETER, "-m", "bench.sglang_reference.child"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        hello = self.ask("hello")
        self.version = hello["sglang"]
        self.trees = hello["trees"]

    def ask(self, op: str, **fields: str | int | None) -> "Answer":
        """One exchange of the protocol in child.py. Raises PeerError with the process's own words."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"op": op, **fields}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise PeerError(f"the SGLang process ended with status {self._process.wait()} during {op!r}")
        answer: Answer = json.loads(line)
        if answer.get("error"):
            raise PeerError(f"{op} {fields}: {answer['error']}")
        return answer

    def open(self, case: str, tree: str, **sizes: int) -> PeerCase:
        """Sets up `case` (child.py lists them with their sizes) on one of `trees`; may take seconds."""
        return PeerCase(self, self.ask("open", case=case, tree=tree, **sizes)["id"])

    def close(self) -> None:
        self._process.communicate()

    def __enter__(self) -> "SglangPeer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def start() -> SglangPeer | None:
    """The reference process, or None, with a line on standard error that says why and what to do about it."""
    if not INTERPRETER.exists():
        print("No SGLang reference: .venv-sglang is missing. bench/sglang_venv.sh makes it.", file=sys.stderr)
        return None
    try:
        return SglangPeer()
    except PeerError as error:
        print(f"No SGLang reference: {error}. bench/sglang_venv.sh makes .venv-sglang anew.", file=sys.stderr)
        return None
