"""Getting the pools' memory at start-up: what others still hold is waited for, and no pool waits for another's."""

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Protocol

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


class PoolMemoryError(RuntimeError):
    """A pool's memory cannot be had; the message names the pool, the shortfall and the way out.

    Attributes:
        may_pass: others hold the memory, and may give it back: the clients of a daemon that was killed, say.
    """

    def __init__(self, message: str, *, may_pass: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class Allocatable(Protocol):
    """A pool before it has its memory."""

    name: str
    spared: bool
    """The others are served without it."""

    def allocate(self) -> None:
        """Get the memory, or raise PoolMemoryError and hold none."""


def allocate_pools(pools: Iterable[Allocatable], wait_seconds: float) -> Mapping[str, PoolMemoryError]:
    """Allocate each pool, for as long as `wait_seconds` where others hold the memory. Returns those without, and why.

    Raises PoolMemoryError where no pool got any, or where one failed that is not spared.
    """
    until = time.monotonic() + wait_seconds
    waiting, failed, served = list(pools), dict[str, PoolMemoryError](), 0
    while waiting:
        again = []
        for pool in waiting:
            try:
                pool.allocate()
                served += 1
            except PoolMemoryError as error:
                if error.may_pass and time.monotonic() < until:
                    again.append(pool)
                    log.warning("%s; waiting for at most %.0f s more", error, until - time.monotonic())
                elif pool.spared:
                    failed[pool.name] = error
                else:
                    raise
        waiting = again
        if waiting:
            time.sleep(RETRY_SECONDS)
    if failed and not served:
        raise next(iter(failed.values()))
    return failed
