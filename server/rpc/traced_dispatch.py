"""A dispatch that makes a span of every Batch. Imported only where spans are asked for."""

from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer

from radixd.server.cache.refusal import Refusal
from radixd.server.gate import Gate
from radixd.server.rpc.batch_run import BatchRun, Run
from radixd.server.rpc.dispatch import Dispatch
from radixd.server.sessions.registry import PoolT, SessionRegistry
from radixd.server.sessions.replies import Reply
from radixd.server.sessions.served_session import ServedSession
from radixd.v1 import cache_pb2


class TracedDispatch(Dispatch):
    """The span begins when a Batch or a unary verb is admitted, and ends with its reply, the turns of others included.

    It names the pool and the session by id, and counts operations; nothing that a client has chosen is in it.
    """

    def __init__(self, registry: SessionRegistry[PoolT], gate: Gate, tracer: Tracer):
        super().__init__(registry, gate)
        self._tracer = tracer

    async def answer(self, session: ServedSession, call: cache_pb2.Call, digest: bytes, run: Run) -> Reply:
        """See Dispatch."""
        span = self._tracer.start_span(_name(run), kind=SpanKind.SERVER, attributes=_attributes(session, call, run))
        try:
            reply = await super().answer(session, call, digest, run)
            if isinstance(reply, Refusal):
                _refused(span, reply)
            return reply
        except Refusal as refusal:
            _refused(span, refusal)
            raise
        finally:
            span.end()


def _name(run: Run) -> str:
    return "batch" if isinstance(run, BatchRun) else next(iter(run.verbs))


def _attributes(session: ServedSession, call: cache_pb2.Call, run: Run) -> dict[str, str | int]:
    verbs = run.verbs
    return {
        "radixd.pool": session.pool.name,
        "radixd.session": session.id,
        "radixd.seq": call.seq,
        "radixd.operations": verbs.total(),
        **{f"radixd.operations.{verb}": count for verb, count in verbs.items()},
    }


def _refused(span: Span, refusal: Refusal) -> None:
    span.set_attribute("radixd.reason", refusal.reason.value)
    span.set_status(Status(StatusCode.ERROR))
