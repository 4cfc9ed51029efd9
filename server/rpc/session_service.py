"""The Sessions service."""

from collections.abc import Mapping
from importlib.metadata import version

import grpc

from radixd.server.cache.prefix_cache import PrefixCache
from radixd.server.cache.session import Dedup
from radixd.server.cache.speculative import Speculative
from radixd.server.gate import Gate
from radixd.server.rpc.convert import SPECULATIVE, bad_field, fill_host_occupancy, fill_occupancy
from radixd.server.rpc.methods import Methods, unary
from radixd.server.sessions.calls import Calls
from radixd.server.sessions.fault import check_served
from radixd.server.sessions.limits import Limits, check_limit
from radixd.server.sessions.opening import Opening
from radixd.server.sessions.registry import PoolT, SessionRegistry
from radixd.server.sessions.served_session import ServedSession
from radixd.v1 import session_pb2 as pb
from radixd.v1 import types_pb2

NAME = "radixd.v1.Sessions"

CONTRACT_REVISION = 1

NONCE_BYTES = 16
MODEL_BYTES = 64
FINGERPRINT_BYTES = 16

MODES: Mapping[int, Speculative] = {mode: speculative for speculative, mode in SPECULATIVE.items()}
DEDUPS: Mapping[int, Dedup] = {
    types_pb2.DEDUP_UNSPECIFIED: Dedup.KEEP,
    types_pb2.DEDUP_KEEP: Dedup.KEEP,
    types_pb2.DEDUP_PATCH: Dedup.PATCH,
}


class SessionService:
    """Answers what a client says about its session as a whole."""

    def __init__(self, registry: SessionRegistry[PoolT], gate: Gate):
        self._registry = registry
        self._gate = gate

    def handler(self, calls: Calls) -> grpc.GenericRpcHandler:
        """All methods of radixd.v1.Sessions, which are counted in `calls`."""
        methods: Methods = {
            "OpenSession": unary(calls, pb.OpenSessionRequest, self.open),
            "CloseSession": unary(calls, pb.CloseSessionRequest, self.close),
            "KeepAlive": unary(calls, pb.KeepAliveRequest, self.keep_alive),
        }
        return grpc.method_handlers_generic_handler(NAME, methods)

    def open(self, request: pb.OpenSessionRequest) -> pb.OpenSessionResponse:
        """OpenSession."""
        self._gate.check()
        return self._opened(self._registry.open(_opening(request, self._registry.limits)))

    def close(self, request: pb.CloseSessionRequest) -> pb.CloseSessionResponse:
        """CloseSession."""
        left = self._registry.close(request.session_id, request.secret, request.epoch, request.completed)
        return pb.CloseSessionResponse(retired_pages=left)

    def keep_alive(self, request: pb.KeepAliveRequest) -> pb.KeepAliveResponse:
        """KeepAlive."""
        session = self._registry.find(request.session_id, request.secret, request.epoch)
        check_served(session.pool)
        cache = session.pool.cache
        cache.complete(session.id, request.completed)
        session.spoke()
        session.pool.turn()
        response = pb.KeepAliveResponse(generation=cache.generation)
        fill_occupancy(response.device, cache.occupancy(session.id))
        fill_host_occupancy(response.host, cache.host_occupancy())
        return response

    def _opened(self, session: ServedSession) -> pb.OpenSessionResponse:
        pool, liveness, limits = session.pool, self._registry.liveness, session.limits
        return pb.OpenSessionResponse(
            session_id=session.id,
            secret=session.secret,
            epoch=self._registry.epoch,
            generation=pool.cache.generation,
            pool=pool.name,
            speculative=SPECULATIVE[pool.speculative],
            dedup=types_pb2.DEDUP_PATCH if session.opening.dedup is Dedup.PATCH else types_pb2.DEDUP_KEEP,
            page_size=pool.cache.config.page_size,
            total_pages=pool.cache.config.pages,
            geometry_fingerprint=pool.geometry.fingerprint,
            attach_socket="" if pool.device_kind == "meta" else self._registry.attach_socket,
            limits=types_pb2.Limits(
                message_bytes=limits.message_bytes,
                tokens=limits.tokens,
                operations=limits.operations,
                leases=limits.leases,
                namespace_bytes=limits.namespace_bytes,
                client_name_bytes=limits.client_name_bytes,
                move_pairs=limits.move_pairs,
                replay_batches=limits.replay_batches,
                replay_bytes=limits.replay_bytes,
            ),
            liveness=pb.Liveness(
                keepalive_seconds=liveness.keepalive_seconds,
                grace_seconds=liveness.grace_seconds,
                ttl_seconds=liveness.ttl_seconds,
            ),
            server_version=version("radixd"),
            contract_revision=CONTRACT_REVISION,
            capabilities=_capabilities(pool.cache),
            total_host_pages=pool.cache.config.host_pages,
        )


def _capabilities(cache: PrefixCache) -> list[str]:
    optional = {"offload": cache.config.host_pages > 0, "import": bool(cache.importer.peers)}
    return ["move", *(name for name, has_it in optional.items() if has_it)]


def _opening(request: pb.OpenSessionRequest, limits: Limits) -> Opening:
    check_limit("client_name", len(request.client_name.encode()), limits.client_name_bytes, "bytes")
    if len(request.nonce) != NONCE_BYTES:
        raise bad_field("nonce", f"{len(request.nonce)} bytes; it is {NONCE_BYTES} random ones")
    if not 1 <= len(request.model) <= MODEL_BYTES:
        raise bad_field("model", f"{len(request.model)} bytes; the digest of the model has 1 to {MODEL_BYTES}")
    if len(request.geometry_fingerprint) not in (0, FINGERPRINT_BYTES):
        given = len(request.geometry_fingerprint)
        raise bad_field("geometry_fingerprint", f"{given} bytes; it has {FINGERPRINT_BYTES}, or is unset")
    if request.speculative and request.speculative not in MODES:
        raise bad_field("speculative", f"{request.speculative} is no mode that this daemon knows")
    if request.dedup not in DEDUPS:
        raise bad_field("dedup", f"{request.dedup} is no way of deduplication that this daemon knows")
    return Opening(
        pool=request.pool,
        client_name=request.client_name,
        nonce=request.nonce,
        model=request.model,
        geometry_fingerprint=request.geometry_fingerprint,
        speculative=MODES.get(request.speculative),
        dedup=DEDUPS[request.dedup],
    )
