"""Where scripts/observe.py lets Prometheus listen."""

import socket

from scripts.observe import loopback_address


def test_a_port_is_left_to_whoever_has_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        assert loopback_address(port) != f"127.0.0.1:{port}"
    assert loopback_address(port) == f"127.0.0.1:{port}"
