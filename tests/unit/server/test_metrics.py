"""Where metrics are served. What they say is tested against a real daemon."""

import socket
from collections.abc import Iterator

import pytest

from radixd.server import metrics
from radixd.server.config import Address
from radixd.server.metrics import MetricsServer
from radixd.server.sessions.limits import Limits
from radixd.server.sessions.liveness import Liveness
from radixd.server.sessions.registry import SessionRegistry


@pytest.fixture
def taken() -> Iterator[Address]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield Address("127.0.0.1", listener.getsockname()[1])


def served(address: Address) -> MetricsServer:
    return MetricsServer(address, {}, SessionRegistry({}, 1, Limits(), Liveness(), ""))


async def test_the_default_port_gives_way_where_it_is_taken(monkeypatch: pytest.MonkeyPatch, taken: Address) -> None:
    monkeypatch.setattr(metrics, "DEFAULT_METRICS", taken)
    server = served(taken)
    assert server.address.port not in (0, taken.port)
    server.close()


async def test_a_port_that_was_asked_for_does_not(taken: Address) -> None:
    with pytest.raises(OSError, match="in use"):
        served(taken)
