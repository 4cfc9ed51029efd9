"""Where the web application listens, and what it answers while the daemon's loop is quick, slow or gone."""

import asyncio
import gzip
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from email.message import Message

import pytest

from radixd.server.config import Address
from radixd.server.config.file import read_config
from radixd.server.gate import Gate, State
from radixd.server.observability import loop_reader
from radixd.server.observability.metrics import Metrics
from radixd.server.pools.copier import Copier
from radixd.server.pools.pool import Pool
from radixd.server.sessions.calls import Calls
from radixd.server.sessions.limits import Limits
from radixd.server.sessions.liveness import Liveness
from radixd.server.sessions.registry import SessionRegistry
from radixd.server.web import WebListener, app, bounded_http, listener, serve_web

ANYWHERE = Address("127.0.0.1", 0)


@pytest.fixture
def taken() -> Iterator[Address]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        yield Address("127.0.0.1", held.getsockname()[1])


@pytest.fixture
async def pool() -> Pool:
    config = read_config(None, None, {"geometry": "tiny", "device": "meta", "tokens": 6400})
    return Pool(config.pools[0], config.limits, Copier(), 1)


@asynccontextmanager
async def served(pool: Pool, gate: Gate, address: Address = ANYWHERE) -> AsyncIterator[WebListener]:
    pools = {pool.name: pool}
    registry = SessionRegistry(pools, 1, Limits(), Liveness(), "")
    metrics = Metrics(pools, registry, gate, Calls(), drain_seconds=10)
    web = serve_web(address, pools, registry, gate, metrics.families)
    yield web
    await web.close()
    metrics.close()


def get_now(web: WebListener, path: str, **headers: str) -> tuple[int, str, Message]:
    request = urllib.request.Request(f"http://{web.address}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            body = response.read()
            if response.headers["content-encoding"] == "gzip":
                body = gzip.decompress(body)
            return response.status, body.decode(), response.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers


async def get(web: WebListener, path: str, **headers: str) -> tuple[int, str, Message]:
    return await asyncio.to_thread(get_now, web, path, **headers)


def serving() -> Gate:
    gate = Gate()
    gate.state = State.SERVING
    return gate


async def test_the_default_port_gives_way_where_it_is_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, taken: Address, pool: Pool
) -> None:
    monkeypatch.setattr(listener, "DEFAULT_METRICS", taken)
    async with served(pool, serving(), taken) as web:
        assert web.address.port not in (0, taken.port)
        (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert str(taken) in warning
        assert f"port {web.address.port}" in warning


async def test_a_port_that_was_asked_for_does_not_even_where_it_is_the_default(
    monkeypatch: pytest.MonkeyPatch, taken: Address, pool: Pool
) -> None:
    monkeypatch.setattr(listener, "DEFAULT_METRICS", taken)
    asked = read_config(None, {"metrics": str(taken)}).metrics
    assert asked == taken
    with pytest.raises(OSError, match="in use"):
        async with served(pool, serving(), asked):
            pass


def test_nobody_asks_for_the_default() -> None:
    assert read_config(None).metrics is listener.DEFAULT_METRICS


async def test_readiness_follows_the_phase_and_the_pools_and_says_why(pool: Pool) -> None:
    gate = Gate()
    async with served(pool, gate) as web:
        assert (await get(web, "/readyz"))[:2] == (503, "the daemon is starting\n")
        gate.state = State.SERVING
        assert (await get(web, "/readyz"))[:2] == (200, "ok\n")
        pool.broken = "page 7 has two\nowners"
        assert (await get(web, "/readyz"))[:2] == (503, "pool default: page 7 has two owners\n")
        assert (await get(web, "/healthz"))[:2] == (200, "ok\n")  # a restart is the operator's decision
        gate.state = State.DRAINING
        assert (await get(web, "/readyz"))[1].startswith("the daemon is draining\npool default")


async def test_a_loop_that_stands_still_is_told_and_blocks_no_other_request(
    monkeypatch: pytest.MonkeyPatch, pool: Pool
) -> None:
    monkeypatch.setattr(loop_reader, "PATIENCE_SECONDS", 0.2)
    async with served(pool, serving()) as web:
        # Called from the loop's own thread: the loop stands still until the answers are there.
        status, reason, _ = get_now(web, "/healthz")
        assert (status, reason) == (503, "the event loop has not answered for 0.2 s\n")
        assert get_now(web, "/")[0] == 200


async def test_a_client_that_reads_nothing_holds_nobody_up(pool: Pool) -> None:
    async with served(pool, serving()) as web:
        with socket.create_connection((web.address.host, web.address.port)) as slow:
            slow.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n")  # and never the rest
            assert (await get(web, "/healthz"))[0] == 200


async def test_metrics_are_compressed_for_whoever_asks(pool: Pool) -> None:
    async with served(pool, serving()) as web:
        _, plain, headers = await get(web, "/metrics")
        assert headers["content-encoding"] is None
        assert headers["content-type"].startswith("text/plain")
        assert 'radixd_pages{pool="default",state="free",tier="device"} 100.0' in plain
        _, _, headers = await get(web, "/metrics", **{"Accept-Encoding": "gzip"})
        assert headers["content-encoding"] == "gzip"
        _, _, headers = await get(web, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
        assert headers["content-type"].startswith("application/openmetrics-text")
        status, _, headers = await get(web, "/metrics", Accept="application/openmetrics-text; version=1.0.x")
        assert (status, headers["content-type"][:10]) == (200, "text/plain")


async def test_the_page_runs_nothing_that_is_not_its_own(pool: Pool) -> None:
    async with served(pool, serving()) as web:
        for path in app.STATIC:
            status, body, headers = await get(web, path)
            assert status == 200
            for _ in range(2):
                assert (await get(web, path, **{"Accept-Encoding": "gzip"}))[:2] == (200, body)
            policy = headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
            assert "unsafe" not in policy
            assert "innerHTML" not in body
            assert "://" not in body.replace("http://www.w3.org/2000/svg", "")  # an XML namespace, never fetched


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("localhost:9464", True),
        ("127.0.0.1", True),
        ("[::1]:9464", True),
        ("radixd:9464", True),
        ("10.0.0.7:9464", True),
        ("rebound.example:9464", False),
        ("127.0.0.1.rebound.example", False),
        ("localhost.", False),
    ],
)
async def test_a_foreign_name_is_refused(pool: Pool, host: str, own: bool) -> None:
    async with served(pool, serving()) as web:
        assert (await get(web, "/state.json", Host=host))[0] == (200 if own else 421)


async def test_nothing_can_be_changed(pool: Pool) -> None:
    async with served(pool, serving()) as web:
        request = urllib.request.Request(f"http://{web.address}/state.json", method="POST", data=b"{}")
        with pytest.raises(urllib.error.HTTPError, match="405"):
            await asyncio.to_thread(urllib.request.urlopen, request)


async def answer_to(web: WebListener, said: bytes) -> bytes:
    """All that comes until the connection ends, which it does by itself."""
    reader, writer = await asyncio.open_connection(web.address.host, web.address.port)
    try:
        writer.write(said)
        return await asyncio.wait_for(reader.read(), 60)
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("said", [b"", b"GET /healthz HTTP/1.1\r\nHost: loc"])
async def test_who_asks_nothing_is_not_kept(pool: Pool, monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    monkeypatch.setattr(bounded_http, "QUIET_SECONDS", 0.05)
    async with served(pool, Gate()) as web:
        assert await answer_to(web, said) == b""


async def test_who_asks_nothing_more_is_not_kept(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_http, "QUIET_SECONDS", 0.05)
    async with served(pool, Gate()) as web:
        while not (answer := await answer_to(web, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET")):
            pass  # this test was not quick enough to ask
        assert answer.startswith(b"HTTP/1.1 200")


async def test_a_body_that_is_no_http_is_refused_in_one_line(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with served(pool, Gate()) as web:
        for said in (b"no HTTP\r\n\r\n", head + b"no number\r\n"):
            assert (await answer_to(web, said)).startswith(b"HTTP/1.1 400")
            assert (await get(web, "/healthz"))[0] == 200
    assert {record.levelname for record in caplog.records} == {"WARNING"}


async def test_for_one_connection_too_many_the_oldest_that_asks_nothing_goes(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_http, "MOST", 3)
    async with served(pool, Gate()) as web:
        asking, *silent = [await asyncio.open_connection(web.address.host, web.address.port) for _ in range(3)]
        for _ in range(2):
            asking[1].write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await asyncio.wait_for(asking[0].readuntil(b"ok\n"), 60)).startswith(b"HTTP/1.1 200")
            assert (await get(web, "/healthz"))[0] == 200
        gone = asyncio.wait_for(silent[0][0].read(), 60)
        with suppress(ConnectionResetError):
            assert await gone == b""
        silent[1][1].write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await asyncio.wait_for(silent[1][0].readline(), 60)).startswith(b"HTTP/1.1 200")
        for _, writer in (asking, *silent):
            writer.close()
