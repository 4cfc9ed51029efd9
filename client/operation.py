"""One operation of a Batch: asked now, answered when the Batch's reply has come."""

from collections.abc import Callable
from typing import Generic, TypeVar

from radixd.client.errors import RadixError, from_status
from radixd.v1 import cache_pb2

T_co = TypeVar("T_co", covariant=True)


class Operation(Generic[T_co]):
    """What `Batch` verbs return. An Acquire's stands for the lease that it opens, in the same Batch."""

    __slots__ = ("_apply", "_error", "_result", "index")

    def __init__(self, index: int, apply: Callable[[cache_pb2.OperationResult], T_co]) -> None:
        self.index = index
        """Place in its Batch."""
        self._apply = apply
        self._error: RadixError | None = None
        self._result: tuple[T_co] | None = None

    @property
    def done(self) -> bool:
        """Whether the answer is known."""
        return self._result is not None or self._error is not None

    @property
    def error(self) -> RadixError | None:
        """Why it was refused; None where it was not, or is not answered yet."""
        return self._error

    def result(self) -> T_co:
        """What the daemon gave. Raises its refusal, or RuntimeError before the reply has come: it never waits."""
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise RuntimeError("this operation is not answered yet: send its Batch and wait for the reply first")
        return self._result[0]

    def settle(self, answer: cache_pb2.OperationResult) -> None:
        """Take the daemon's answer in. Called once, by the session."""
        if answer.HasField("status"):
            self._error = from_status(answer.status)
        else:
            self._result = (self._apply(answer),)

    def fail(self, error: RadixError) -> None:
        """The whole Batch was refused, or its session has ended."""
        if not self.done:
            self._error = error
