"""A session as the daemon serves it: who calls, who is attached, what has been answered."""

import asyncio
from typing import Protocol

from radixd.server.cache.namespace import Namespace
from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.sessions.limits import Limits
from radixd.server.sessions.liveness import Liveness, Silence
from radixd.server.sessions.opening import Opening
from radixd.server.sessions.replies import Reply, ReplyWindow
from radixd.server.sessions.served_pool import ServedPool


class Holder(Protocol):
    """A process that may touch the pool's memory, known by its attach connection."""

    @property
    def pid(self) -> int:
        """As the kernel names it."""
        ...

    def release(self) -> bool:
        """Its session is over and has nothing retired. Whether its connection is still open, and so the memory."""
        ...


class Stream(Protocol):
    """An open Schedule stream."""

    def stop(self, refusal: Refusal) -> None:
        """Ends the stream with `refusal` at once; a Batch that runs goes on without it."""
        ...

    def finish(self, refusal: Refusal) -> None:
        """Ends the stream with `refusal` once the reply at hand, if any, is written."""
        ...


class ServedSession:
    """One live session. At most one Batch of it runs at a time, and at most one stream is open."""

    def __init__(
        self, session_id: int, secret: bytes, pool: ServedPool, opening: Opening, limits: Limits, liveness: Liveness
    ):
        self.id = session_id
        self.secret = secret
        self.pool = pool
        self.opening = opening
        self.limits = limits
        self.namespace = Namespace(opening.model)  # of calls that name none
        self.ended = False
        self.replies = ReplyWindow(limits.replay_batches, limits.replay_bytes)
        self.running: asyncio.Task[Reply] | None = None
        self.stream: Stream | None = None
        self.holders: set[Holder] = set()
        self.silence = Silence(liveness.ttl_seconds)
        self.idle_seconds = 0.0
        """Since a call last came, whether a stream is open or not: the registry's ticks count it."""
        self._liveness = liveness

    def release_holders(self) -> list[Holder]:
        """Nothing is left that a process's end could free. Returns those that may still have the memory open."""
        left = [holder for holder in self.holders if holder.release()]
        self.holders.clear()
        return left

    def spoke(self) -> None:
        """A call has come."""
        self.idle_seconds = 0.0
        self.silence.broken(self._liveness.ttl_seconds)

    def take_over(self, stream: Stream) -> None:
        """Makes `stream` the session's only one and fences out an older one."""
        older, self.stream = self.stream, stream
        if older is not None:
            message = f"a newer stream of session {self.id} has taken over; this one is closed"
            older.stop(Refusal(Reason.FENCED, message))

    def leave(self, stream: Stream) -> None:
        """`stream` has ended: the grace period begins, unless another has taken over."""
        if self.stream is stream:
            self.stream = None
            self.silence.broken(self._liveness.grace_seconds)

    def check_live(self) -> None:
        """Refuses with NO_SESSION where the session has ended."""
        if self.ended:
            raise no_session(self.id)


def no_session(session_id: int) -> Refusal:
    """The answer to every call of a session that is not there."""
    message = f"no session {session_id}: never opened, closed, expired or reaped; open a new one"
    return Refusal(Reason.NO_SESSION, message)
