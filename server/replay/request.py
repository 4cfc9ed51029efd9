"""What a scheduler is asked to run."""

from dataclasses import dataclass

from radixd.server.replay.fingerprint import Tokens


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One request. `output` is what it will generate, known beforehand so that a rerun is the same; empty: nothing."""

    index: int
    """Its place in the workload."""
    prompt: Tokens
    output: Tokens
    extra_key: bytes = b""
