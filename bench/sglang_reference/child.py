"""The reference process: answers one JSON object a line on standard input with one on standard output.

    {"op": "hello"}                                              → {"sglang": "0.5.23", "torch": …, "trees": […]}
    {"op": "open", "case": "match", "tree": T, "tokens": 8192, "nodes": 100}              → {"id": 1}
         also  insert: tokens · evict: leaves · lock, unlock: depth · prefill: seed
    {"op": "sample", "id": 1, "repeats": 20}                     → {"ns": [20 integers]}
    {"op": "close", "id": 1}                                     → {}
    {"op": "bytes_per_token", "tree": T, "node_tokens": 64}      → {"bytes": 70.1}
    {"op": "replay", "tree": T, "pool_tokens": N, "trace": PATH, "requests": N | null}    → counts

A request that fails is answered {"error": text} and changes nothing. The process ends when its input does.
Run it in the interpreter of bench/sglang_venv.sh, from the repository's root: python -m bench.sglang_reference.child
"""

import json
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TextIO

from bench.sglang_reference.cases import CASES, Case
from bench.sglang_reference.footprint import bytes_per_token
from bench.sglang_reference.replay import replay
from bench.sglang_reference.trees import TREES


class Child:
    """The open cases, by id."""

    def __init__(self) -> None:
        self._cases: dict[int, Case] = {}
        self._opened = 0

    def answer(self, op: str, **fields: object) -> dict[str, object]:
        verbs: dict[str, Callable[..., dict[str, object]]] = {
            "hello": self._hello,
            "open": self._open,
            "sample": self._sample,
            "close": self._close,
            "bytes_per_token": self._bytes_per_token,
            "replay": self._replay,
        }
        if op not in verbs:
            raise ValueError(f"op is {op!r}; it must be one of {', '.join(verbs)}")
        return verbs[op](**fields)

    def _hello(self) -> dict[str, object]:
        return {"sglang": version("sglang"), "torch": version("torch"), "trees": TREES}

    def _open(self, case: str, tree: str, **sizes: int) -> dict[str, object]:
        if case not in CASES:
            raise ValueError(f"case is {case!r}; it must be one of {', '.join(CASES)}")
        self._opened += 1
        self._cases[self._opened] = CASES[case](tree, **sizes)
        return {"id": self._opened}

    def _sample(self, id: int, repeats: int) -> dict[str, object]:
        case = self._cases[id]
        return {"ns": [case.sample() for _ in range(repeats)]}

    def _close(self, id: int) -> dict[str, object]:
        del self._cases[id]
        return {}

    def _bytes_per_token(self, tree: str, node_tokens: int) -> dict[str, object]:
        return {"bytes": bytes_per_token(tree, node_tokens)}

    def _replay(self, tree: str, pool_tokens: int, trace: str, requests: int | None = None) -> dict[str, object]:
        return dict(replay(tree, pool_tokens, Path(trace), requests))


def _answers_only() -> TextIO:
    """Standard output for answers alone: what a library prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return answers


def main() -> None:
    answers = _answers_only()
    child = Child()
    for line in sys.stdin:
        try:
            answer = child.answer(**json.loads(line))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
