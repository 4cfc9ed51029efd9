"""Every session of the daemon: how it is found, and the one step in which it ends."""

import hmac
import logging
from collections.abc import Iterator, Mapping
from itertools import chain, count
from secrets import token_bytes
from typing import Generic, TypeVar

from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.sessions.fault import check_served, guarded
from radixd.server.sessions.limits import Limits
from radixd.server.sessions.liveness import TICK_SECONDS, Liveness
from radixd.server.sessions.opening import Opening
from radixd.server.sessions.served_pool import ServedPool
from radixd.server.sessions.served_session import Holder, ServedSession, Stream, no_session

log = logging.getLogger(__name__)

SECRET_BYTES = 16

PoolT = TypeVar("PoolT", bound=ServedPool)


class SessionRegistry(Generic[PoolT]):
    """Owned by the event loop's thread; every method is one synchronous step.

    A session ends by CloseSession, by the death of all its processes, by silence or by an operator. Time revokes its
    id; only proof (no process left, or the client's word that nothing runs) frees pages that it may still write.
    """

    def __init__(
        self,
        pools: Mapping[str, PoolT],
        epoch: int,
        limits: Limits,
        liveness: Liveness,
        attach_socket: str,
    ):
        self.pools = pools
        self.epoch = epoch
        self.limits = limits
        self.liveness = liveness
        self.attach_socket = attach_socket
        self.streams: set[Stream] = set()  # every open one, also those that have not said yet whose they are
        self._serials = count(1)
        self._live: dict[int, ServedSession] = {}
        self._nonces: dict[bytes, ServedSession] = {}
        self._retired: dict[int, ServedSession] = {}  # ended, but a process of it lives
        self._left: dict[Holder, ServedPool] = {}  # processes of sessions that are over, connected still

    def __iter__(self) -> Iterator[ServedSession]:
        """Live sessions, then those over whose pages stay retired."""
        return chain(self._live.values(), self._retired.values())

    # --- opening and finding

    def open(self, opening: Opening) -> ServedSession:
        """A new session, or the live one that the same nonce opened.

        Refuses: BAD_FIELD, NO_POOL, GEOMETRY_MISMATCH, BROKEN_INVARIANT, DEVICE_LOST.
        """
        earlier = self._nonces.get(opening.nonce)
        if earlier is not None:
            if earlier.opening != opening:
                message = "nonce: it has opened a session with other content; draw a new one for each session"
                raise Refusal(Reason.BAD_FIELD, message, field="nonce")
            earlier.spoke()
            return earlier
        pool = self._pool(opening.pool)
        check_served(pool)
        _check_geometry(pool, opening)
        session = ServedSession(
            next(self._serials), token_bytes(SECRET_BYTES), pool, opening, self.limits, self.liveness
        )
        pool.cache.open_session(session.id, opening.model, opening.dedup)
        self._live[session.id] = self._nonces[opening.nonce] = session
        log.info("session %d opened by %r in pool %s", session.id, opening.client_name, pool.name, extra=_ids(session))
        return session

    def _pool(self, name: str) -> PoolT:
        if not name and len(self.pools) == 1:
            return next(iter(self.pools.values()))
        pools = ", ".join(self.pools)
        if not name:
            raise Refusal(Reason.BAD_FIELD, f"pool: name one of those served: {pools}", field="pool")
        if name not in self.pools:
            message = f"pool: no pool {name[:64]!r} is served here; there are: {pools}"
            raise Refusal(Reason.NO_POOL, message, field="pool", facts={"pools": pools})
        return self.pools[name]

    def find(self, session_id: int, secret: bytes, epoch: int) -> ServedSession:
        """The live session that `secret` proves. Refuses: STALE_EPOCH, NO_SESSION, BAD_SECRET."""
        self.check_epoch(epoch)
        return self._authentic(self._live.get(session_id), session_id, secret)

    def check_epoch(self, epoch: int) -> None:
        """Refuses with STALE_EPOCH what speaks of an earlier daemon."""
        if epoch != self.epoch:
            message = f"epoch {epoch} is over, this is {self.epoch}: the daemon has restarted; open a new session"
            raise Refusal(Reason.STALE_EPOCH, message, facts={"epoch": self.epoch})

    def _authentic(self, session: ServedSession | None, session_id: int, secret: bytes) -> ServedSession:
        if session is None:
            raise no_session(session_id)
        if not hmac.compare_digest(session.secret, secret):
            raise Refusal(Reason.BAD_SECRET, f"the secret is not that of session {session_id}")
        return session

    def is_held(self, pool: PoolT) -> bool:
        """Whether a process may have the pool's memory open."""
        return pool in self._left.values() or any(session.pool is pool and session.holders for session in self)

    # --- processes

    def attach(self, session_id: int, secret: bytes, holder: Holder) -> PoolT:
        """Counts `holder` among the session's processes, before it is given memory.

        Refuses: NO_SESSION, BAD_SECRET, BROKEN_INVARIANT, DEVICE_LOST.
        """
        session = self._authentic(self._live.get(session_id), session_id, secret)
        check_served(session.pool)
        session.holders.add(holder)
        return self.pools[session.pool.name]

    def holder_gone(self, session_id: int, holder: Holder) -> None:
        """A process is proved gone. The last one's death ends the session, any other's bars its writes."""
        self._left.pop(holder, None)
        session = self._live.get(session_id) or self._retired.get(session_id)
        if session is None or holder not in session.holders:
            return
        session.holders.remove(holder)
        if session.holders:
            if not session.ended:
                self._bar_writers(session, holder)
        elif session.ended:
            self._prove_gone(session)
        else:
            self._end(session, "its last process is gone", proved_gone=True)

    def _bar_writers(self, session: ServedSession, left: Holder) -> None:
        barred = 0
        with guarded(session.pool, "barring a dead writer"):
            barred = session.pool.cache.bar_writers(session.id)
        if barred:
            text = "session %d: pid %d has left, other attachments stay; leases that publish nothing more: %d"
            log.warning(text, session.id, left.pid, barred, extra=_ids(session) | {"pid": left.pid})

    # --- endings

    def close(self, session_id: int, secret: bytes, epoch: int, completed: int) -> int:
        """Ends a session at its client's word. Returns pages left retired; 0 for a session that is over.

        Refuses: STALE_EPOCH, BAD_SECRET, BAD_FIELD.
        """
        self.check_epoch(epoch)
        session = self._live.get(session_id) or self._retired.get(session_id)
        if session is None:
            return 0
        self._authentic(session, session_id, secret)
        if session.ended:
            return session.pool.cache.endings.retired_pages(session_id)
        steps = session.pool.cache.session(session_id).fence
        if completed > steps.launched:
            message = f"completed: {completed} is above the {steps.launched} steps that were launched"
            raise Refusal(Reason.BAD_FIELD, message, field="completed")
        idle = max(completed, steps.completed) == steps.launched
        return self._end(session, "closed", proved_gone=idle or not session.holders)

    def tick(self, elapsed_seconds: float) -> None:
        """Tells that time has passed, once a TICK_SECONDS or later, and ends sessions that were silent for too long."""
        for session in self:
            session.idle_seconds += min(elapsed_seconds, 2 * TICK_SECONDS)
        for session in list(self._live.values()):
            if session.stream is None and session.silence.over(elapsed_seconds):
                reason = f"silent for {session.silence.seconds:.0f} s"
                self._end(session, reason, proved_gone=not session.holders)

    def reap(self, session_id: int, client_name: str) -> int:
        """Ends a session at an operator's word that nothing of it touches the pool. Returns pages freed.

        Refuses: NO_SESSION, BAD_FIELD.
        """
        session = self._live.get(session_id) or self._retired.get(session_id)
        if session is None:
            message = f"no session {session_id}: it never was, or has ended and holds nothing; see `radixd sessions`"
            raise Refusal(Reason.NO_SESSION, message)
        if session.opening.client_name != client_name:
            message = (
                f"client_name: {client_name[:64]!r} is not the name of session {session_id}; see `radixd sessions`"
            )
            raise Refusal(Reason.BAD_FIELD, message, field="client_name")
        if not session.ended:
            self._end(session, "reaped", proved_gone=False)
        return self._prove_gone(session)

    def stop_streams(self, refusal: Refusal) -> None:
        """Ends every open stream after the reply at hand; the sessions live on, in grace."""
        for stream in list(self.streams):
            stream.finish(refusal)

    def _end(self, session: ServedSession, reason: str, *, proved_gone: bool) -> int:
        """Rule 10: from here on everything of the session is answered NO_SESSION. Returns pages left retired."""
        session.ended = True
        del self._live[session.id], self._nonces[session.opening.nonce]
        if session.stream is not None:
            session.stream.stop(no_session(session.id))
        left = 0
        with guarded(session.pool, "ending a session"):
            left = session.pool.cache.end_session(session.id, proved_gone=proved_gone)
        session.pool.turn()
        if left:
            self._retired[session.id] = session
        else:
            self._let_go(session)
        log.info("session %d ended, %s; pages left retired: %d", session.id, reason, left, extra=_ids(session))
        return left

    def _prove_gone(self, session: ServedSession) -> int:
        self._retired.pop(session.id, None)
        self._let_go(session)
        freed = 0
        with guarded(session.pool, "freeing an ended session"):
            freed = session.pool.cache.prove_gone(session.id)
        session.pool.turn()
        log.info("session %d is proved gone; pages freed: %d", session.id, freed, extra=_ids(session))
        return freed

    def _let_go(self, session: ServedSession) -> None:
        """Of its processes, which no page waits for any more; while they have the memory open, it must not be freed."""
        self._left.update(dict.fromkeys(session.release_holders(), session.pool))


def _ids(session: ServedSession) -> dict[str, str | int]:
    """What a line of the log is about."""
    return {"pool": session.pool.name, "session": session.id}


def _check_geometry(pool: ServedPool, opening: Opening) -> None:
    theirs, ours = opening.geometry_fingerprint.hex(), pool.geometry.fingerprint.hex()
    if theirs and theirs != ours:
        message = (
            f"geometry_fingerprint: {theirs} is not pool {pool.name}'s {ours} ({pool.geometry.name}): "
            "the engine would write other bytes; start the daemon with the engine's geometry"
        )
        facts: dict[str, int | str] = {"geometry_fingerprint": theirs, "pool_geometry_fingerprint": ours}
        raise Refusal(Reason.GEOMETRY_MISMATCH, message, field="geometry_fingerprint", facts=facts)
    if opening.speculative not in (None, pool.speculative):
        message = f"speculative: {opening.speculative} is not pool {pool.name}'s mode {pool.speculative}"
        facts = {"speculative": str(opening.speculative), "pool_speculative": pool.speculative.value}
        raise Refusal(Reason.GEOMETRY_MISMATCH, message, field="speculative", facts=facts)
