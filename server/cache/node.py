"""A node of the radix tree: a run of whole pages under one parent."""

from __future__ import annotations

from collections.abc import Iterator

from radixd.server.cache.namespace import Namespace
from radixd.server.cache.results import NO_PAGES, PageIds


class Node:
    """A run of whole pages: its key elements, its page ids, and what eviction and locks need to know.

    The run's elements are `buffer[start:stop]`. Splits share the buffer; every node spans at least half of its own, so
    a tree holds at most twice the bytes of its keys.
    """

    __slots__ = (
        "arriving", "born", "buffer", "chain", "children", "device_children", "expires", "hits", "host",
        "host_children", "keep_ref", "last_use", "listed", "lock_ref", "pages", "parent", "priority", "retain_seconds",
        "root", "saving", "serial", "size", "start", "stop",
    )  # fmt: skip

    def __init__(self, serial: int, parent: Node | None, buffer: bytes, size: int):
        self.serial = serial
        self.parent = parent
        self.root: Root = parent.root if parent else self  # type: ignore[assignment]  # a node without parent is a Root
        self.buffer = buffer
        self.start = 0
        self.stop = len(buffer)
        self.size = size  # pages
        self.pages = NO_PAGES  # on the device: `size` ids, or none
        self.host = NO_PAGES  # in the host tier: `size` ids, or none
        self.arriving: object | None = None  # the copy that has yet to fill the device pages
        self.saving = False  # a copy to the host is in flight
        self.device_children = 0  # children with device pages
        self.host_children = 0
        self.chain: bytes | None = None  # hash of the whole prefix, once somebody has asked for it
        self.children: dict[bytes, Node] = {}
        self.lock_ref = 0  # leases and copies that hold every page
        self.keep_ref = 0  # offloaded leases that hold host pages
        self.priority = 0
        self.retain_seconds: float | None = None
        self.expires: float | None = None  # clock time at which the priority falls to 0
        self.listed: float | None = None  # the deadline that the retention clock lists it under, at most `expires`
        self.hits = 0
        self.born = serial
        self.last_use = 0

    def key(self, page_bytes: int) -> bytes:
        """The run's first page: what its parent knows it by."""
        return self.buffer[self.start : self.start + page_bytes]

    def upwards(self, pages: int) -> Iterator[Node]:
        """The nodes whose runs are the last `pages` pages of the path: this one, then its ancestors."""
        node: Node | None = self
        while pages:
            assert node is not None
            pages -= node.size
            yield node
            node = node.parent

    def run(self) -> bytes:
        """The run's key elements."""
        return self.buffer[self.start : self.stop]

    def common_pages(self, key: bytes, at: int, limit: int, page_bytes: int) -> int:
        """How many pages of the run, at most `limit`, equal key[at:]; the first does, or nobody would have come here.

        All at once if they are equal, else by bisection. startswith compares in place; a slice would be copied first.
        """
        run = memoryview(self.buffer)[self.start : self.stop]
        common = 1
        unknown = step = min(self.size, limit) - common
        while unknown:
            start, stop = common * page_bytes, (common + step) * page_bytes
            if key.startswith(run[start:stop], at + start):
                common, unknown = common + step, unknown - step
            else:
                unknown = step - 1
            step = (unknown + 1) // 2
        return common

    def cut_head(self, page_count: int, page_bytes: int, head: Node) -> None:
        """Gives the first pages of the run to `head`, an empty node. Copies the shorter half of the key at most."""
        cut = self.start + page_count * page_bytes
        head.buffer, head.start, head.stop = self.buffer, self.start, cut
        head.pages, self.pages = self.pages[:page_count], self.pages[page_count:]
        head.host, self.host = self.host[:page_count], self.host[page_count:]
        head.size, self.size = page_count, self.size - page_count
        self.start = cut
        head.compact()
        self.compact()

    def cut_tail(self, page_count: int, page_bytes: int) -> PageIds:
        """Takes the last pages off a run that only the device holds, and returns their ids."""
        self.size -= page_count
        pages, self.pages = self.pages[self.size :], self.pages[: self.size]
        self.stop = self.start + self.size * page_bytes
        self.chain = None
        self.compact()
        return pages

    def compact(self) -> None:
        """Lets go of a buffer that the run spans less than half of."""
        if 2 * (self.stop - self.start) < len(self.buffer):
            self.buffer = self.buffer[self.start : self.stop]
            self.start, self.stop = 0, len(self.buffer)
            self.pages, self.host = self.pages.copy(), self.host.copy()


class Root(Node):
    """A namespace's root: no tokens, no pages. Detached once a Flush has made its tree unmatchable."""

    __slots__ = ("detached", "namespace")

    def __init__(self, serial: int, namespace: Namespace):
        super().__init__(serial, None, b"", 0)
        self.namespace = namespace
        self.detached = False
