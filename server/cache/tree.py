"""The radix tree: which prefixes the pool holds, in which pages, and which of them are locked."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import numpy as np

from radixd.server.cache.eviction import EvictionQueue, RetentionClock
from radixd.server.cache.namespace import Namespace
from radixd.server.cache.node import Node, Root
from radixd.server.cache.results import NO_PAGES, PageIds


class Walk(NamedTuple):
    """The longest match of a key: whole nodes down to `node`, then `partial_pages` of its child `partial`."""

    node: Node
    partial: Node | None
    partial_pages: int
    pages: int  # matched in all


class RadixTree:
    """Compressed, page-aligned, one root for each namespace.

    A child is known to its parent by the bytes of its first page, so siblings differ in their first page. A locked
    node's ancestors are locked: `lock_ref` counts the leases anchored at the node or below it. No method recurses.
    """

    def __init__(self, page_bytes: int, policy: str):
        self.page_bytes = page_bytes  # key bytes of a page
        self.queue = EvictionQueue(policy)
        self.retention = RetentionClock()
        self.roots: dict[Namespace, Root] = {}
        self.detached: set[Root] = set()
        self.nodes = 0  # roots aside
        self.evictable = 0  # pages under no lock
        self.protected = 0
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
            if common < len(child.pages):
                return Walk(node, child, common, at // width)
            node = child
        return Walk(node, None, 0, at // width)

    def unlocked_pages(self, walk: Walk) -> int:
        """Pages of a match that a lock on it would take out of the evictable ones."""
        pages = walk.partial_pages if walk.partial is not None and not walk.partial.lock_ref else 0
        node = walk.node
        while not node.lock_ref and node.parent is not None:
            pages += len(node.pages)
            node = node.parent
        return pages

    def trim(self, walk: Walk, pages: int) -> Walk:
        """The same match, `pages` shorter."""
        node, partial, partial_pages = walk.node, walk.partial, walk.partial_pages
        for _ in range(pages):
            if not partial_pages:
                assert node.parent is not None
                node, partial, partial_pages = node.parent, node, len(node.pages)
            partial_pages -= 1
        return Walk(node, partial if partial_pages else None, partial_pages, walk.pages - pages)

    def pages_between(self, above: Node | None, node: Node) -> PageIds:
        """Page ids of the path below `above` (None: from the root) down to the end of `node`."""
        runs = []
        current: Node | None = node
        while current is not above and current is not None:
            runs.append(current.pages)
            current = current.parent
        return np.concatenate(runs[::-1]) if runs else NO_PAGES

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
            self.queue.refresh(current)
            current = current.parent

    def raise_priority(self, node: Node, priority: int, retain_seconds: float | None, now: float) -> None:
        """Raises the path to a priority that holds for `retain_seconds` after a node's last hit; None: for ever."""
        current = node
        while current.parent is not None:
            if priority > current.priority:
                current.priority, current.retain_seconds = priority, retain_seconds
                self.queue.refresh(current)
            elif priority == current.priority and current.retain_seconds is not None:
                longer = None if retain_seconds is None else max(retain_seconds, current.retain_seconds)
                current.retain_seconds = longer
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
                self.queue.refresh(node)

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
        return self._split(walk.partial, walk.partial_pages)

    def _split(self, lower: Node, pages: int) -> Node:
        """Puts a new node above `lower` that takes its first `pages`. Anchors at `lower` stay where they are."""
        parent = lower.parent
        assert parent is not None
        upper = Node(next(self._serials), parent, b"", NO_PAGES)
        lower.cut_head(pages, self.page_bytes, upper)
        upper.children[lower.key(self.page_bytes)] = lower
        upper.lock_ref, upper.hits, upper.born, upper.last_use = lower.lock_ref, lower.hits, lower.born, lower.last_use
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

    def append(self, node: Node, key: bytes, pages: PageIds) -> Node:
        """Adds a leaf under `node`, of which no child starts with the same page. The caller locks it next."""
        leaf = Node(next(self._serials), node, key, pages)
        node.children[leaf.key(self.page_bytes)] = leaf
        self.nodes += 1
        self.evictable += len(pages)
        return leaf

    # --- locks

    def lock(self, node: Node, above: Node | None = None) -> None:
        """Locks the path from `node` up to, and without, `above`; to the root where `above` is None."""
        current: Node | None = node
        while current is not above and current is not None:
            if not current.lock_ref:
                self.queue.discard(current)
                self.evictable -= len(current.pages)
                self.protected += len(current.pages)
            current.lock_ref += 1
            current = current.parent

    def hit(self, node: Node, now: float) -> None:
        """Counts a hit on the path to `node` and extends its retention."""
        current = node
        while current.parent is not None:
            current.hits += 1
            self._extend_retention(current, now)
            current = current.parent

    def unlock(self, node: Node) -> PageIds:
        """Takes one lock off the whole path. Returns pages that left the tree: a detached node's, once unlocked."""
        used = next(self._clock)
        left = []
        current: Node | None = node
        while current is not None:
            parent = current.parent
            current.lock_ref -= 1
            current.last_use = used
            if not current.lock_ref:
                self.protected -= len(current.pages)
                if current.root.detached:
                    left.append(current.pages)
                    self._forget(current)
                else:
                    self.evictable += len(current.pages)
                    self._queue_or_prune(current)
            current = parent
        return np.concatenate(left) if left else NO_PAGES

    def _forget(self, node: Node) -> None:
        """Takes a detached, unlocked node off its tree."""
        self.retention.forget(node)
        if node.parent is None:
            self.detached.discard(node.root)
        else:
            del node.parent.children[node.key(self.page_bytes)]
            self.nodes -= 1

    def _queue_or_prune(self, node: Node) -> None:
        """A node that has become an unlocked leaf can be evicted; a root that has, is dropped."""
        if node.lock_ref or node.children:
            return
        if node.parent is not None:
            self.queue.add(node)
        else:
            del self.roots[node.root.namespace]

    # --- shrinking

    def evict(self, pages: int) -> PageIds:
        """Takes exactly `pages` pages off the tails of unlocked leaves, in policy order. There are as many."""
        left, wanted = [], pages
        while wanted:
            leaf = self.queue.first()
            taken = min(wanted, len(leaf.pages))
            wanted -= taken
            if taken < len(leaf.pages):
                left.append(leaf.cut_tail(taken, self.page_bytes))
            else:
                left.append(leaf.pages)
                self._remove(leaf)
        self.evictable -= pages
        return np.concatenate(left) if left else NO_PAGES

    def _remove(self, leaf: Node) -> None:
        self.queue.discard(leaf)
        self.retention.forget(leaf)
        parent = leaf.parent
        assert parent is not None
        del parent.children[leaf.key(self.page_bytes)]
        self.nodes -= 1
        self._queue_or_prune(parent)

    def detach(self) -> PageIds:
        """Makes everything unmatchable: returns the unlocked pages, keeps the locked ones for their leases."""
        left = []
        for root in self.roots.values():
            stack: list[Node] = [root]
            while stack:
                node = stack.pop()
                for key, child in list(node.children.items()):
                    stack.append(child)
                    if not child.lock_ref:
                        left.append(child.pages)
                        self.retention.forget(child)
                        self.nodes -= 1
                        self.queue.discard(child)
                        del node.children[key]
            root.detached = True
            if root.lock_ref:
                self.detached.add(root)
        self.roots = {}
        self.evictable = 0
        return np.concatenate(left) if left else NO_PAGES
