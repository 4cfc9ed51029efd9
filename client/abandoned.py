"""Leases that come for nobody: their callers were cancelled, interrupted or told that no daemon answers."""

from typing import Generic

from radixd.client.batch import BatchBuilder, L
from radixd.client.errors import RadixError, Unreachable
from radixd.client.lease import LeaseStatus, Standing
from radixd.client.operation import Operation
from radixd.client.results import Reply


class Abandoned(Generic[L]):
    """Operations that open leases, and whose Batch was abandoned, until their leases are released."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        self._operations: list[Operation[L]] = []

    def add(self, batch: BatchBuilder[L]) -> None:
        """Nobody takes what `batch` opens, or has opened already."""
        self._operations += batch.opening
        batch.opening = []

    def release_into(self, batch: BatchBuilder[L], most: int) -> "Returning[L]":
        """Release what has been opened so far, by at most `most` operations of `batch`: where its reply goes."""
        answered = [operation for operation in self._operations if operation.done][:most]
        for operation in answered:
            self._operations.remove(operation)
            if operation.error is None and self._is_held(operation.result()):
                batch.release(operation.result())
        return Returning(answered, self._operations)

    def __bool__(self) -> bool:
        return bool(self._operations)

    def _is_held(self, lease: L) -> bool:
        return lease.standing is self._standing and lease.status is not LeaseStatus.RELEASED


class Returning(Generic[L]):
    """The outcome of a Batch that releases abandoned leases: where it is refused as a whole, they stay abandoned."""

    def __init__(self, operations: list[Operation[L]], abandoned: list[Operation[L]]) -> None:
        self._operations = operations
        self._abandoned = abandoned

    def done(self) -> bool:
        """Nobody cancels it."""
        return False

    def set_result(self, result: Reply, /) -> None:
        """They are released."""

    def set_exception(self, error: RadixError, /) -> None:
        """Not yet. While a daemon is out of reach the Batch itself is kept."""
        if not isinstance(error, Unreachable):
            self._abandoned += self._operations
