"""A bounded look at the tree and at the leases."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain, islice
from typing import NamedTuple

from radixd.server.cache.lease import Lease
from radixd.server.cache.namespace import Namespace
from radixd.server.cache.node import Node
from radixd.server.cache.prefix_cache import PrefixCache

MAX_NODES = 1_000
"""Nodes that one survey visits: about a millisecond."""


class PrefixRow(NamedTuple):
    """A node, and where its prefix ends."""

    node: int
    namespace: Namespace
    end_page: int
    device_pages: int
    host_pages: int
    hits: int
    lock_ref: int
    priority: int


class LeaseRow(NamedTuple):
    """A lease; lengths in tokens."""

    session: int
    lease: int
    state: str
    known: int
    allocated: int
    written: int
    published: int
    own_pages: int
    reserved_pages: int
    priority: int


def survey_nodes(cache: PrefixCache, limit: int = MAX_NODES) -> list[PrefixRow]:
    """The nodes nearest to the roots, level by level, `limit` at most: a node's hits are never below its children's."""
    found: list[tuple[Node, int]] = []
    level: deque[tuple[Node, int]] = deque((root, 0) for root in islice(cache.tree.roots.values(), limit))
    while level and len(found) < limit:
        node, start = level.popleft()
        end = start + node.size
        if node.parent is not None:
            found.append((node, end))
        room = limit - len(found) - len(level)
        level.extend((child, end) for child in islice(node.children.values(), max(0, room)))
    return [
        PrefixRow(
            node.serial, node.root.namespace, end, len(node.pages), len(node.host), node.hits, node.lock_ref,
            node.priority,
        )
        for node, end in found
    ]  # fmt: skip


def survey_leases(cache: PrefixCache, limit: int) -> list[LeaseRow]:
    """The leases of live sessions, each session's oldest first, `limit` at most."""
    leases = chain.from_iterable(session.leases.values() for session in cache.sessions.values())
    return list(_lease_rows(islice(leases, limit), cache.config.page_size))


def _lease_rows(leases: Iterator[Lease], page_size: int) -> Iterator[LeaseRow]:
    for lease in leases:
        yield LeaseRow(
            lease.session_id, lease.lease_id, lease.state.value, len(lease.tokens), lease.table.length * page_size,
            lease.written, lease.published, lease.table.own_count(), lease.reserved, lease.priority,
        )  # fmt: skip
