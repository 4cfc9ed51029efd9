"""What becomes of a pool whose cache has raised what it should not."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex

from radixd.server.cache.invariants import check_invariants
from radixd.server.cache.refusal import BrokenInvariant, Reason, Refusal
from radixd.server.sessions.served_pool import ServedPool

log = logging.getLogger(__name__)


def check_served(pool: ServedPool) -> None:
    """Refuses with BROKEN_INVARIANT or DEVICE_LOST where the pool has been stopped."""
    if pool.broken is not None:
        raise _stopped(pool)


def stop_pool(pool: ServedPool, violations: str) -> None:
    """Serves the pool no longer, for its ledger does not add up. The first cause stays."""
    _stop(pool, Reason.BROKEN_INVARIANT, f"its ledger does not add up: {violations}")


def lose_pool(pool: ServedPool, why: str) -> None:
    """Serves the pool no longer, for its memory is not there. The first cause stays."""
    _stop(pool, Reason.DEVICE_LOST, f"its memory is lost: {why}")


def _stop(pool: ServedPool, reason: Reason, why: str) -> None:
    if pool.broken is None:
        pool.broken, pool.broken_reason = why, reason
        log.critical("pool %s is stopped, %s", pool.name, why, extra={"pool": pool.name})
        pool.turn()


def _stopped(pool: ServedPool, facts: dict[str, int | str] | None = None) -> Refusal:
    message = f"pool {pool.name} is stopped, {str(pool.broken)[:500]}; restart the daemon"
    return Refusal(pool.broken_reason, message, facts=facts)


def fault(pool: ServedPool, error: Exception, doing: str) -> Refusal:
    """What to answer after an unexpected exception out of the cache.

    BUG where the ledger still adds up: the exception came before any change that matters, and the daemon serves on.
    Otherwise the pool is stopped and the answer is BROKEN_INVARIANT. To know, everything is recounted: slow, and worth
    it.
    """
    incident = token_hex(6)
    ids = {"pool": pool.name, "incident": incident}
    log.error("incident %s in pool %s, %s", incident, pool.name, doing, exc_info=error, extra=ids)
    violations = str(error) if isinstance(error, BrokenInvariant) else _recount(pool)
    facts: dict[str, int | str] = {"incident": incident}
    if violations:
        stop_pool(pool, violations)
        return _stopped(pool, facts)
    message = f"{doing} failed with {type(error).__name__}, the ledger adds up; report incident {incident} of the log"
    return Refusal(Reason.BUG, message, facts=facts)


@contextmanager
def guarded(pool: ServedPool, doing: str) -> Iterator[None]:
    """Runs what nobody waits for an answer of. A fault is logged, and stops the pool if it must; it goes no further."""
    try:
        yield
    except Exception as error:
        fault(pool, error, doing)


def _recount(pool: ServedPool) -> str:
    try:
        check_invariants(pool.cache)
    except Exception as error:  # a ledger too broken to be recounted is broken
        return str(error) or type(error).__name__
    return ""
