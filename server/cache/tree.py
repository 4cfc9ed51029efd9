"""The radix tree: which prefixes the pool holds, and how they are walked, cut and grown."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import numpy as np

from radixd.server.cache.namespace import Namespace
from radixd.server.cache.node import Node, Root
from radixd.server.cache.results import NO_PAGES, PageIds
from radixd.server.cache.retention import RetentionClock
from radixd.server.cache.tier import Tier


class Walk(NamedTuple):
    """The longest match of a key: whole nodes down to `node`, then `partial_pages` of its child `partial`."""

    node: Node
    partial: Node | None
    partial_pages: int
    pages: int  # matched in all


def whole(node: Node) -> Walk:
    """The match that ends where `node` does, as far as locks go."""
    return Walk(node, None, 0, 0)


class Query(NamedTuple):
    """Key elements to look for in a namespace; at most `max_pages` pages of them may match."""

    namespace: Namespace
    key: bytes
    max_pages: int


class RadixTree:
    """Compressed, page-aligned, one root for each namespace.

    A child is known to its parent by the bytes of its first page, so siblings differ in their first page. What a node
    has on the device or on the host is Residence's affair; here it only follows splits. No method recurses.
    """

    def __init__(self, page_bytes: int, device: Tier, host: Tier):
        self.page_bytes = page_bytes  # key bytes of a page
        self.device = device
        self.host = host
        self.retention = RetentionClock()
        self.roots: dict[Namespace, Root] = {}
        self.detached: set[Root] = set()
        self.nodes = 0  # roots aside
        self._serials = count(1)
        self._clock = count(1)

    # --- reading

    def walk(self, namespace: Namespace, key: bytes, max_pages: int) -> Walk | None:
        """Matches at most `max_pages` of `key`. None where the namespace has no tree yet."""
        root = self.roots.get(namespace)
        return None if root is None else self._descend(root, key, min(len(key) // self.page_bytes, max_pages))

    def _descend(self, node: Node, key: bytes, pages: int) -> Walk:
        width = self.page_bytes
        at, end = 0, pages * width
        while at < end:
            child = node.children.get(key[at : at + width])
            if child is None:
                break
            common = child.common_pages(key, at, (end - at) // width, width)
            at += common * width
            if common < child.size:
                return Walk(node, child, common, at // width)
            node = child
        return Walk(node, None, 0, at // width)

    def trim(self, walk: Walk, pages: int) -> Walk:
        """The same match, `pages` shorter."""
        node, partial, partial_pages = walk.node, walk.partial, walk.partial_pages
        short = pages
        while short:
            if partial is None or not partial_pages:
                assert node.parent is not None
                node, partial, partial_pages = node.parent, node, node.size
            cut = min(short, partial_pages)
            partial_pages, short = partial_pages - cut, short - cut
        return Walk(node, partial if partial_pages else None, partial_pages, walk.pages - pages)

    def pages_between(self, above: Node | None, node: Node) -> PageIds:
        """Device page ids of the path below `above` (None: from the root) down to the end of `node`."""
        runs = []
        current: Node | None = node
        while current is not above and current is not None:
            runs.append(current.pages)
            current = current.parent
        return np.concatenate(runs[::-1]) if runs else NO_PAGES

    def depth(self, node: Node) -> int:
        """Pages from the root down to the end of `node`."""
        pages = 0
        current: Node | None = node
        while current is not None:
            pages += current.size
            current = current.parent
        return pages

    def __iter__(self) -> Iterator[Node]:
        """Every node but the roots, detached ones too, parents first."""
        stack: list[Node] = [*self.roots.values(), *self.detached]
        while stack:
            node = stack.pop()
            if node.parent is not None:
                yield node
            stack.extend(node.children.values())

    # --- recency and priority

    def touch(self, node: Node) -> None:
        """Refreshes the recency of a node and its ancestors."""
        now = next(self._clock)
        current: Node | None = node
        while current is not None:
            current.last_use = now
            self._refresh(current)
            current = current.parent

    def raise_priority(self, node: Node, priority: int, retain_seconds: float | None, now: float) -> None:
        """Raises the path to a priority that holds for `retain_seconds` after a node's last hit; None: for ever.

        It ends where a node has as much for ever: when that was given, its ancestors got it too.
        """
        current = node
        while current.parent is not None and (priority > current.priority or current.retain_seconds is not None):
            if priority > current.priority:
                current.priority, current.retain_seconds = priority, retain_seconds
                self._refresh(current)
            elif priority == current.priority and current.retain_seconds is not None:
                longer = None if retain_seconds is None else max(retain_seconds, current.retain_seconds)
                current.retain_seconds = longer
            self._extend_retention(current, now)
            current = current.parent

    def _refresh(self, node: Node) -> None:
        self.device.refresh(node)
        self.host.refresh(node)

    def hit(self, node: Node, now: float) -> None:
        """Counts a hit on the path to `node` and extends its retention."""
        current = node
        while current.parent is not None:
            current.hits += 1
            self._extend_retention(current, now)
            current = current.parent

    def _extend_retention(self, node: Node, now: float) -> None:
        if node.retain_seconds is not None:
            self.retention.watch(node, now + node.retain_seconds)

    def expire(self, now: float) -> None:
        """Drops the priority of nodes whose retention is over to 0."""
        for node in self.retention.expired(now):
            if node.retain_seconds is not None:
                node.priority, node.retain_seconds = 0, None
                self._refresh(node)

    # --- growing

    def root(self, namespace: Namespace) -> Root:
        root = self.roots.get(namespace)
        if root is None:
            root = self.roots[namespace] = Root(next(self._serials), namespace)
        return root

    def cut(self, walk: Walk) -> Node:
        """Makes a match end at a node's end, by a split if it must, and returns that node."""
        if walk.partial is None:
            return walk.node
        return self.split(walk.partial, walk.partial_pages)

    def split(self, lower: Node, pages: int) -> Node:
        """Puts a new node above `lower` that takes its first `pages`. Anchors at `lower` stay where they are."""
        parent = lower.parent
        assert parent is not None
        upper = Node(next(self._serials), parent, b"", 0)
        lower.cut_head(pages, self.page_bytes, upper)
        upper.children[lower.key(self.page_bytes)] = lower
        upper.device_children, upper.host_children = int(len(lower.pages) > 0), int(len(lower.host) > 0)
        upper.lock_ref, upper.keep_ref = lower.lock_ref, lower.keep_ref
        upper.arriving, upper.saving = lower.arriving, lower.saving
        upper.hits, upper.born, upper.last_use = lower.hits, lower.born, lower.last_use
        upper.priority, upper.retain_seconds = lower.priority, lower.retain_seconds
        if lower.expires is not None:
            self.retention.watch(upper, lower.expires)
        parent.children[upper.key(self.page_bytes)] = upper
        lower.parent = upper
        self.nodes += 1
        return upper

    def overlap(self, anchor: Node, key: bytes) -> Walk:
        """How much of `key`, which follows `anchor`, the tree holds already."""
        return self._descend(anchor, key, len(key) // self.page_bytes)

    def append(self, node: Node, key: bytes) -> Node:
        """Adds a leaf under `node`, of which no child starts with the same page. The caller gives it pages next."""
        leaf = Node(next(self._serials), node, key, len(key) // self.page_bytes)
        node.children[leaf.key(self.page_bytes)] = leaf
        self.nodes += 1
        return leaf

    def remove(self, node: Node) -> None:
        """Takes a node that has no pages and no children out of the tree."""
        assert node.parent is not None
        self.retention.forget(node)
        del node.parent.children[node.key(self.page_bytes)]
        self.nodes -= 1

    def drop_root(self, root: Root) -> None:
        """Takes out a root without children that nothing holds."""
        if root.detached:
            self.detached.discard(root)
        else:
            del self.roots[root.namespace]

    def detach(self) -> None:
        """Makes everything unmatchable, and leaves it where it is."""
        for root in self.roots.values():
            root.detached = True
        self.detached.update(self.roots.values())
        self.roots = {}
