"""Getting the pools' memory at start-up: what others still hold is waited for, and no pool waits for another's."""

import asyncio
import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
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

    def memory_parts(self) -> Mapping[str, int]:
        """Host memory that `allocate` will take, in bytes, by name. Raises OSError where a file's size is not known."""

    def allocate(self) -> None:
        """Get the memory, or raise PoolMemoryError and hold none."""


async def allocate_unless(
    stop: asyncio.Event, pools: Sequence[Allocatable], wait_seconds: float
) -> Mapping[str, PoolMemoryError] | None:
    """`check_memory` and then `allocate_pools`, on a thread; None where `stop` came first. Raises PoolMemoryError.

    The thread then goes on by itself: nothing ends an allocation half way, and so nobody waits for it.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Mapping[str, PoolMemoryError]] = loop.create_future()

    def work() -> None:
        try:
            check_memory(pools)
            failed = allocate_pools(pools, wait_seconds)
        except Exception as problem:
            end = partial(outcome.set_exception, problem)
        else:
            end = partial(outcome.set_result, failed)
        with suppress(RuntimeError):  # the loop is closed: `stop` came first
            loop.call_soon_threadsafe(end)

    # Not an executor's thread, which the loop's end would wait for.
    threading.Thread(target=work, name="radixd-allocate", daemon=True).start()
    stopped = asyncio.create_task(stop.wait())
    outcome.add_done_callback(lambda _: stopped.cancel())
    await asyncio.wait({stopped})
    return outcome.result() if outcome.done() else None


def check_memory(pools: Iterable[Allocatable]) -> None:
    """Whether all pools fit together, before the first takes any memory. Raises PoolMemoryError."""
    try:
        parts = {name: nbytes for pool in pools for name, nbytes in pool.memory_parts().items()}
    except OSError as error:
        raise PoolMemoryError(f"cannot use the state directory: {error}; give another --state-dir") from error
    if parts:
        # Torch takes seconds to import: a daemon without memory does without it.
        from radixd.gpu_pool.device import DeviceMemoryError
        from radixd.gpu_pool.host_memory import check_fits

        try:
            check_fits(parts)
        except DeviceMemoryError as error:
            raise PoolMemoryError(str(error)) from error


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
                    left, ids = until - time.monotonic(), {"pool": pool.name}
                    log.warning("%s; waiting for at most %.0f s more", error, left, extra=ids)
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
