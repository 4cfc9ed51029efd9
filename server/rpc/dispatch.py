"""The one way into the cache: every Batch and every unary verb is admitted, ordered, run and answered here."""

from asyncio import create_task, sleep, wait

from radixd.server.cache.refusal import Refusal
from radixd.server.cache.step import StepMark
from radixd.server.gate import Gate
from radixd.server.rpc.batch_run import Run
from radixd.server.sessions.fault import check_served, fault
from radixd.server.sessions.registry import PoolT, SessionRegistry
from radixd.server.sessions.replies import Reply
from radixd.server.sessions.served_session import ServedSession, Stream
from radixd.v1 import cache_pb2


class Dispatch:
    """Runs a session's Batches strictly one after another, each to its end.

    A Batch runs in the caller's turn of the loop as long as that is short, and otherwise in a task of its session: a
    call that is cancelled, or a stream that dies, leaves it running. Its last operation and the recording of its reply
    are one step without an await, so a retry finds either a Batch that has not begun, one that runs, or its reply.
    """

    def __init__(self, registry: SessionRegistry[PoolT], gate: Gate):
        self._registry = registry
        self._gate = gate

    @property
    def streams(self) -> set[Stream]:
        """Every open stream, whoever's it is."""
        return self._registry.streams

    def admit(self, call: cache_pb2.Call) -> ServedSession:
        """The session that calls.

        Refuses: STARTING, DRAINING, STALE_EPOCH, NO_SESSION, BAD_SECRET, BROKEN_INVARIANT.
        """
        # First, so that a restarted daemon can say it before it has its memory, which may be waiting for the caller's.
        self._registry.check_epoch(call.epoch)
        self._gate.check()
        session = self._registry.find(call.session_id, call.secret, call.epoch)
        check_served(session.pool)
        session.spoke()
        return session

    async def answer(self, session: ServedSession, call: cache_pb2.Call, digest: bytes, run: Run) -> Reply:
        """The reply to the request of that digest, for the first time or again.

        Refuses, with no trace left: NO_SESSION, SEQ_REUSED, SEQ_EXPIRED, BAD_FIELD, BUG, BROKEN_INVARIANT.
        """
        while session.running is not None:
            await wait((session.running,))
            session.check_live()
        reply = session.replies.find(call.seq, digest)
        if reply is not None:
            return reply
        _begin(session, call)
        reply = self._proceed(session, call.seq, digest, run)
        if reply is not None:
            return reply
        task = session.running = create_task(self._finish(session, call.seq, digest, run))
        await wait((task,))
        return task.result()

    async def _finish(self, session: ServedSession, seq: int, digest: bytes, run: Run) -> Reply:
        reply = None
        while reply is None:
            await sleep(0)
            reply = self._proceed(session, seq, digest, run)
        session.running = None
        return reply

    def _proceed(self, session: ServedSession, seq: int, digest: bytes, run: Run) -> Reply | None:
        """One turn of a run, and once it is over, the recording of its reply. Never raises."""
        try:
            over = run.proceed()
            session.pool.turn()
            if not over:
                return None
            reply = run.reply(seq, self._registry.epoch)
        except Refusal as refusal:  # the session has ended, and with it its replies
            return refusal
        except Exception as error:
            reply = fault(session.pool, error, "answering a Batch")
        if isinstance(reply, Refusal):
            reply.facts["seq"] = seq  # tells the client that this refusal has used up its seq
        session.replies.record(digest, reply)
        return reply


def _begin(session: ServedSession, call: cache_pb2.Call) -> None:
    """Tells the cache, and the window of replies, what the Batch says of its caller."""
    try:
        session.pool.cache.advance(session.id, StepMark(call.seq, call.ack, call.launched, call.completed))
    except Refusal as refusal:
        field = f"call.{refusal.field}"
        raise Refusal(refusal.reason, f"call.{refusal.message}", field=field, facts=refusal.facts) from None
    except Exception as error:
        raise fault(session.pool, error, "beginning a Batch") from error
    session.replies.acknowledge(call.ack)
