"""What requests have found cached."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from radixd.server.replay.tally import Outcome


@dataclass(frozen=True, slots=True)
class Hits:
    """Tokens of some requests that ended: of their prompts, and what of these their first Acquire found."""

    requests: int
    prompt_tokens: int
    hit_tokens: int
    host_hit_tokens: int
    """Of the hits, those that came from the host."""
    peer_hit_tokens: int
    """Of the hits, those that were imported from another pool."""

    @classmethod
    def of(cls, outcomes: Iterable[Outcome]) -> Self:
        """Of these requests."""
        ended = tuple(outcomes)
        return cls(
            requests=len(ended),
            prompt_tokens=sum(outcome.prompt_tokens for outcome in ended),
            hit_tokens=sum(outcome.hit_tokens for outcome in ended),
            host_hit_tokens=sum(outcome.host_hit_tokens for outcome in ended),
            peer_hit_tokens=sum(outcome.peer_hit_tokens for outcome in ended),
        )

    @property
    def device_hit_tokens(self) -> int:
        """Of the hits, those that were on the device."""
        return self.hit_tokens - self.host_hit_tokens - self.peer_hit_tokens

    @property
    def rate(self) -> float:
        """Hits, of the prompts' tokens."""
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    def figures(self) -> dict[str, object]:
        """As plain data."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "hit_tokens": self.hit_tokens,
            "device_hit_tokens": self.device_hit_tokens,
            "host_hit_tokens": self.host_hit_tokens,
            "peer_hit_tokens": self.peer_hit_tokens,
            "hit_rate": round(self.rate, 6),
        }

    def __str__(self) -> str:
        return (
            f"{self.hit_tokens:,} tokens, {self.rate:.2%} of the prompts: "
            f"{self.device_hit_tokens:,} on the device, {self.host_hit_tokens:,} from the host, "
            f"{self.peer_hit_tokens:,} from peers"
        )
