"""Mooncake-format request traces: one JSON object a line, prompts as hashes of 512-token blocks.

Standard library and numpy only, so that a benchmark's reference can read the same prompts in an environment without
the rest of radixd.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

BLOCK_TOKENS = 512


@dataclass(frozen=True, slots=True)
class TraceLine:
    """One request: lengths in tokens, one hash id for each 512 tokens of the prompt."""

    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]


def read_trace(path: Path, requests: int | None = None) -> Iterator[TraceLine]:
    """The first `requests` lines, or all. ValueError names the file and the line that is no request."""
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if number == requests:
                return
            try:
                record = json.loads(line)
                read = TraceLine(
                    int(record["input_length"]), int(record["output_length"]), tuple(map(int, record["hash_ids"]))
                )
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(
                    f"{path}, line {number + 1}: expected an object with input_length, output_length and hash_ids "
                    f"({type(error).__name__}: {error})"
                ) from error
            if not 0 < read.input_length <= len(read.hash_ids) * BLOCK_TOKENS:
                raise ValueError(
                    f"{path}, line {number + 1}: input_length {read.input_length} is outside "
                    f"[1, {len(read.hash_ids) * BLOCK_TOKENS}], what {len(read.hash_ids)} hash_ids stand for"
                )
            yield read


def expand(hash_ids: Sequence[int], input_length: int) -> npt.NDArray[np.uint32]:
    """uint32[input_length]. Id h stands for the tokens 512·h … 512·h + 511 (modulo 2³²); the last block is cut off.

    Two prompts therefore share tokens exactly where they share ids.
    """
    starts = np.asarray(hash_ids, dtype=np.uint64) * np.uint64(BLOCK_TOKENS)
    tokens = starts[:, None] + np.arange(BLOCK_TOKENS, dtype=np.uint64)
    return tokens.astype(np.uint32).reshape(-1)[:input_length]
