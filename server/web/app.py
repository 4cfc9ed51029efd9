"""The web application: the page, the state it polls, health, and metrics."""

from collections.abc import Callable
from importlib.resources import files
from ipaddress import ip_address

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from radixd.server.observability.loop_reader import LoopSilentError
from radixd.server.web.status import Status

GZIP_LEVEL = 1
"""A page map is mostly runs: the fastest level makes it a hundredth, and higher ones take the CPU that engines need."""

STATIC = {"/": "index.html", "/page.css": "page.css", "/page.js": "page.js"}
MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def build_app(status: Status, metrics: CollectorRegistry) -> Starlette:
    """GET alone. `metrics` is collected on a thread, and may wait for the daemon's loop."""

    async def state(request: Request) -> Response:
        return Response(await status.json(), media_type="application/json", headers=SECURITY_HEADERS)

    async def healthz(request: Request) -> Response:
        await status.unready()  # any answer will do
        return _text("ok")

    async def readyz(request: Request) -> Response:
        reasons = await status.unready()
        return _text("\n".join(reasons), 503) if reasons else _text("ok")

    async def exposition(request: Request) -> Response:
        try:
            encode, content_type = choose_encoder(request.headers.get("accept", ""))
        except (TypeError, ValueError):  # of a version that is none
            encode, content_type = choose_encoder("")
        body = await run_in_threadpool(encode, metrics)
        return Response(body, headers={**SECURITY_HEADERS, "Content-Type": content_type})

    return Starlette(
        routes=[
            *(Route(path, _static(name)) for path, name in STATIC.items()),
            Route("/state.json", state),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", exposition),
        ],
        middleware=[Middleware(OwnHost), Middleware(GZipMiddleware, compresslevel=GZIP_LEVEL)],
        exception_handlers={LoopSilentError: _silent},
    )


def _static(name: str) -> Callable[[Request], Response]:
    body = (files("radixd.server.web") / "static" / name).read_bytes()
    # A response of its own for each request: whatever compresses one changes its headers in place.
    return lambda request: Response(body, media_type=MEDIA_TYPES[name.rpartition(".")[2]], headers=SECURITY_HEADERS)


def _text(body: str, status: int = 200) -> Response:
    return PlainTextResponse(f"{body}\n", status, headers=SECURITY_HEADERS)


async def _silent(request: Request, error: Exception) -> Response:
    return _text(str(error), 503)


class OwnHost:
    """Refuses requests that a foreign web page sends through a name of its own that resolves to the loopback address.

    A name is believed only if it can be no other machine's: an address, localhost, or a name without a dot.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or answer 421."""
        if scope["type"] != "http" or _own(Request(scope).headers.get("host", "")):
            await self._app(scope, receive, send)
        else:
            refusal = _text("ask by an address or by localhost: this name may be another site's", 421)
            await refusal(scope, receive, send)


def _own(host: str) -> bool:
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if "." not in name and ":" not in name:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
