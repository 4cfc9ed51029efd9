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
    """Refuses with BROKEN_INVARIANT where the pool has been stopped."""
    if pool.broken is not None:
        message = f"pool {pool.name} is stopped, its ledger does not add up: {pool.broken[:500]}; restart the daemon"
        raise Refusal(Reason.BROKEN_INVARIANT, message)


def stop_pool(pool: ServedPool, violations: str) -> None:
    """Serves the pool no longer. The first cause stays."""
    if pool.broken is None:
        pool.broken = violations
        log.critical("pool %s is stopped, its ledger does not add up: %s", pool.name, violations)
        pool.turn()


def fault(pool: ServedPool, error: Exception, doing: str) -> Refusal:
    """What to answer after an unexpected exception out of the cache.

    BUG where the ledger still adds up: the exception came before any change that matters, and the daemon serves on.
    Otherwise the pool is stopped and the answer is BROKEN_INVARIANT. To know, everything is recounted: slow, and worth
    it.
    """
    incident = token_hex(6)
    log.error("incident %s in pool %s, %s", incident, pool.name, doing, exc_info=error)
    violations = str(error) if isinstance(error, BrokenInvariant) else _recount(pool)
    facts: dict[str, int | str] = {"incident": incident}
    if violations:
        stop_pool(pool, violations)
        message = f"pool {pool.name} is stopped, its ledger does not add up: {violations[:500]}; restart the daemon"
        return Refusal(Reason.BROKEN_INVARIANT, message, facts=facts)
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
