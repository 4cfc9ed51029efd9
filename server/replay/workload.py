"""Which requests a run is made of. A scheduler process gets the description, not the tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from radixd.server.replay.conversations import conversation_requests
from radixd.server.replay.fingerprint import mixed
from radixd.server.replay.mooncake import TraceLine, expand, read_trace
from radixd.server.replay.request import Request


class Workload(Protocol):
    """Requests 0 … len − 1; the same index gives the same request in every process."""

    def __len__(self) -> int:
        """How many."""

    def __getitem__(self, index: int, /) -> Request:
        """One of them."""

    def output_lengths(self) -> list[int]:
        """Tokens that each generates."""


@dataclass(frozen=True, slots=True)
class WorkloadChoice:
    """What the command line asked for."""

    trace: Path | None
    """A Mooncake-format file; None: the built-in conversations."""
    requests: int | None
    """None: all of the trace."""
    decode: bool
    seed: int

    def open(self) -> Workload:
        """The workload. OSError or ValueError where the trace cannot be read."""
        if self.trace is not None:
            return TraceWorkload(tuple(read_trace(self.trace, self.requests)), decode=self.decode)
        if self.requests is None:
            raise ValueError("--requests all needs a trace: the built-in conversations have no end")
        return ConversationWorkload(conversation_requests(self.seed, self.requests, decode=self.decode))


class ConversationWorkload:
    """The built-in conversations, all made at once."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._requests = requests

    def __len__(self) -> int:
        return len(self._requests)

    def __getitem__(self, index: int, /) -> Request:
        return self._requests[index]

    def output_lengths(self) -> list[int]:
        """See Workload."""
        return [request.output.size for request in self._requests]


class TraceWorkload:
    """A trace's requests, expanded when they are asked for: all of them at once would be gigabytes."""

    def __init__(self, lines: Sequence[TraceLine], *, decode: bool) -> None:
        self._lines = lines
        self._decode = decode

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, index: int, /) -> Request:
        line = self._lines[index]
        places = np.arange(line.output_length * self._decode, dtype=np.uint64)
        output = mixed(places + np.uint64((index + 1) << 32)).astype(np.uint32)
        return Request(index, expand(line.hash_ids, line.input_length), output)

    def output_lengths(self) -> list[int]:
        """See Workload."""
        return [line.output_length * self._decode for line in self._lines]
