"""Health as a probe sees it: the whole, each service, each pool."""

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from radixd.server.health import Health

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.mark.parametrize(
    ("serving", "troubles", "whole", "service", "pools"),
    [
        (False, {"a": "", "b": ""}, NOT_SERVING, NOT_SERVING, (NOT_SERVING, NOT_SERVING)),
        (True, {"a": "", "b": ""}, SERVING, SERVING, (SERVING, SERVING)),
        (True, {"a": "its GPU is lost", "b": ""}, NOT_SERVING, SERVING, (NOT_SERVING, SERVING)),
        (True, {"a": "lost", "b": "lost"}, NOT_SERVING, NOT_SERVING, (NOT_SERVING, NOT_SERVING)),
    ],
)
async def test_health(
    serving: bool, troubles: dict[str, str], whole: int, service: int, pools: tuple[int, int]
) -> None:
    server = grpc.aio.server()
    health = Health(server, ("radixd.v1.Cache",))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)

        async def said(name: str) -> int:
            return (await stub.Check(health_pb2.HealthCheckRequest(service=name))).status

        await health.say(serving=True, troubles={"a": "", "b": ""})
        await health.say(serving=serving, troubles=troubles)
        assert await said("") == whole
        assert await said("radixd.v1.Cache") == service
        assert (await said("pool.a"), await said("pool.b")) == pools
        await health.announce_end()
        assert {await said(name) for name in ("", "radixd.v1.Cache", "pool.a", "pool.b")} == {NOT_SERVING}
    await server.stop(0)
