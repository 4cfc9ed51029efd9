"""The built-in workload: conversations of several turns over a few shared system prompts, all from one seed."""

from dataclasses import dataclass, field

import numpy as np

from radixd.server.replay.fingerprint import Tokens
from radixd.server.replay.request import Request

VOCABULARY = 150_000

ADAPTER = b"adapter-1"
"""The extra key of every eighth conversation: the same system prompts in another namespace, with other bytes."""

Range = tuple[int, int]
"""Least and most, both included."""


@dataclass(frozen=True, slots=True)
class ConversationShape:
    """Lengths in tokens. The defaults turn a pool of 1 GiB of GLM-5.3 (310 pages) over many times."""

    systems: int = 6
    system: Range = (256, 512)
    question: Range = (48, 480)
    answer: Range = (16, 48)
    turns: Range = (2, 5)
    at_once: int = 12
    """Conversations that take turns with each other."""


@dataclass(slots=True)
class _Conversation:
    number: int
    history: Tokens
    turns_left: int
    extra_key: bytes = field(init=False)

    def __post_init__(self) -> None:
        self.extra_key = ADAPTER if self.number % 8 == 7 else b""


class _Source:
    def __init__(self, seed: int, shape: ConversationShape) -> None:
        self._random = np.random.default_rng(seed)
        self._shape = shape
        self._systems = [self.text(shape.system) for _ in range(shape.systems)]
        self._begun = 0

    def text(self, length: Range) -> Tokens:
        """Fresh tokens."""
        return self._random.integers(VOCABULARY, size=self.draw(length), dtype=np.uint32)

    def draw(self, span: Range) -> int:
        """A whole number within `span`."""
        return int(self._random.integers(span[0], span[1] + 1))

    def begin(self) -> _Conversation:
        """A new conversation under one of the system prompts."""
        system = self._systems[self.draw((0, len(self._systems) - 1))]
        self._begun += 1
        return _Conversation(self._begun - 1, system, self.draw(self._shape.turns))


def conversation_requests(
    seed: int, requests: int, *, decode: bool, shape: ConversationShape | None = None
) -> list[Request]:
    """`requests` requests, each a turn of one of the conversations that are going on.

    A turn's prompt is its system prompt and all that was said before. Without `decode` a request generates nothing;
    its answer still stands in the next turn's prompt.
    """
    shape = shape or ConversationShape()
    source = _Source(seed, shape)
    going = [source.begin() for _ in range(shape.at_once)]
    made = []
    for index in range(requests):
        place = source.draw((0, shape.at_once - 1))
        talk = going[place]
        prompt = np.concatenate((talk.history, source.text(shape.question)))
        answer = source.text(shape.answer)
        made.append(Request(index, prompt, answer if decode else answer[:0], talk.extra_key))
        talk.history = np.concatenate((prompt, answer))
        talk.turns_left -= 1
        if not talk.turns_left:
            going[place] = source.begin()
    return made
