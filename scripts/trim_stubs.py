"""Takes the server's half out of generated gRPC stubs: the daemon reads bytes by handlers of its own.

Usage: scripts/trim_stubs.py FILE...     each a *_pb2_grpc.py or its .pyi, rewritten in place
"""

import ast
import sys
from pathlib import Path


def is_servers(node: ast.stmt, services: set[str]) -> bool:
    """Whether only a server, or gRPC's experimental calls without a stub, would need it."""
    if isinstance(node, ast.FunctionDef):
        return node.name.startswith("add_") and node.name.endswith("_to_server")
    return isinstance(node, ast.ClassDef) and (node.name.endswith("Servicer") or node.name in services)


def trimmed(source: str) -> str:
    """The same text without them, and without comments that speak of them."""
    body = ast.parse(source).body
    names = {node.name for node in body if isinstance(node, ast.ClassDef)}
    services = {name.removesuffix("Stub") for name in names if name.endswith("Stub")}
    lines = source.splitlines()
    for node in reversed(body):
        if is_servers(node, services):
            first, last = node.lineno - 1, node.end_lineno
            while lines[first - 1].startswith(("#", " #")):
                first -= 1
            del lines[first:last]
    return "\n".join(lines).rstrip() + "\n"


for name in sys.argv[1:]:
    path = Path(name)
    path.write_text(trimmed(path.read_text()))
