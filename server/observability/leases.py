"""Who holds what: sessions, leases, and their locks."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from prometheus_client.metrics_core import Metric

from radixd.server.cache.lease import Lease, LeaseState
from radixd.server.observability.families import add_histogram, gauge, histogram
from radixd.server.pools.pool import Pool
from radixd.server.sessions.registry import SessionRegistry
from radixd.server.sessions.served_session import ServedSession

IDLE_SECONDS = 30.0
"""A session that has not spoken for so long is idle; engines at work speak every step."""


@dataclass
class _Held:
    """By the live sessions of one pool."""

    states: Counter[LeaseState] = field(default_factory=Counter)
    tokens: int = 0
    tail_tokens: int = 0
    locks: int = 0
    idle_locks: int = 0
    oldest: float = 0.0
    closing: int = 0

    def count(self, lease: Lease, now: float, page_size: int, *, idle: bool) -> None:
        self.states[lease.state] += 1
        if lease.active:
            known = len(lease.tokens)
            self.tokens += known
            self.tail_tokens += -known % page_size
            self.locks += 1
            self.idle_locks += idle
            self.oldest = max(self.oldest, now - lease.locked_at)


def sessions(pools: Iterable[Pool], registry: SessionRegistry[Pool]) -> Iterator[Metric]:
    """Schedulers, and the processes attached in their names."""
    count = gauge("radixd_sessions", "Sessions; ended: over, but their pages stay retired", "state")
    silence = gauge("radixd_longest_silence_seconds", "Since a session with active leases last spoke, the longest")
    holders = gauge("radixd_holders", "Processes attached")
    for pool in pools:
        known = [session for session in registry if session.pool is pool]
        live = [session for session in known if not session.ended]
        count.add_metric([pool.name, "live"], len(live))
        count.add_metric([pool.name, "ended"], len(known) - len(live))
        busy = (session.idle_seconds for session in live if pool.cache.session(session.id).active_leases)
        silence.add_metric([pool.name], max(busy, default=0.0))
        holders.add_metric([pool.name], sum(len(session.holders) for session in known))
    yield from (count, silence, holders)


def leases(pools: Iterable[Pool], registry: SessionRegistry[Pool]) -> Iterator[Metric]:
    """Leases of live sessions, and what they hold."""
    count = gauge("radixd_leases", "Leases; closing: ended, but a step or a copy may still touch their pages", "state")
    tokens = gauge("radixd_active_lease_tokens", "Tokens known to active leases: the contexts that engines read")
    tail = gauge("radixd_tail_waste_bytes", "Slots without a token in the last pages of active leases, on one device")
    locks = gauge("radixd_locks_held", "Leases that hold a lock on a prefix")
    idle = gauge("radixd_idle_locks_held", f"Of them, locks of sessions silent for {IDLE_SECONDS:.0f} s or longer")
    oldest = gauge("radixd_oldest_lock_seconds", "How long the oldest of those locks has been held")
    for pool in pools:
        held = _held(pool, (session for session in registry if session.pool is pool and not session.ended))
        for state in LeaseState:
            count.add_metric([pool.name, state.value], held.states[state])
        count.add_metric([pool.name, "closing"], held.closing)
        tokens.add_metric([pool.name], held.tokens)
        tail.add_metric([pool.name], held.tail_tokens * pool.geometry.bytes_per_token)
        locks.add_metric([pool.name], held.locks)
        idle.add_metric([pool.name], held.idle_locks)
        oldest.add_metric([pool.name], held.oldest)
    yield from (count, tokens, tail, locks, idle, oldest)


def _held(pool: Pool, live: Iterable[ServedSession]) -> _Held:
    held, now = _Held(), time.monotonic()
    for session in live:
        inner = pool.cache.session(session.id)
        held.closing += len(inner.closing)
        for lease in inner.leases.values():
            held.count(lease, now, pool.geometry.page_size, idle=session.idle_seconds >= IDLE_SECONDS)
    return held


def ended_leases(pools: Iterable[Pool]) -> Iterator[Metric]:
    """How long leases were, and how long they lasted."""
    length = histogram("radixd_lease_length_tokens", "Tokens known to each lease at its end, waiting ones aside")
    seconds = histogram("radixd_lock_seconds", "How long each ended lease had held its lock")
    for pool in pools:
        add_histogram(length, [pool.name], pool.cache.counters.lease_length)
        add_histogram(seconds, [pool.name], pool.cache.counters.lock_seconds)
    yield from (length, seconds)
