"""A lease: one request's tokens, its lock on a prefix, and its private pages."""

from __future__ import annotations

from collections.abc import Callable

from radixd.server.cache.namespace import Namespace
from radixd.server.cache.node import Node
from radixd.server.cache.page_table import PageTable
from radixd.server.cache.results import NO_PAGES
from radixd.server.cache.tokens import TokenBuffer


class Lease:
    """Waiting while it has no anchor, active from Acquire on. Lengths are in tokens: published ≤ written ≤ known."""

    __slots__ = (
        "anchor", "barred", "close", "copies", "ended", "lease_id", "namespace", "pending", "priority", "published",
        "reserved", "retain_seconds", "session_id", "steps_over", "table", "tokens", "written",
    )  # fmt: skip

    def __init__(
        self,
        lease_id: int,
        session_id: int,
        namespace: Namespace,
        tokens: TokenBuffer,
        priority: int,
        retain_seconds: float | None,
    ):
        self.lease_id = lease_id
        self.session_id = session_id
        self.namespace = namespace
        self.tokens = tokens
        self.priority = priority
        self.retain_seconds = retain_seconds
        self.anchor: Node | None = None  # the lock's receipt: end of the published prefix
        self.table = PageTable(NO_PAGES)
        self.published = 0
        self.pending = 0  # what Inserts that wait for a step will have published
        self.written = 0
        self.reserved = 0  # pages that it may still claim
        self.copies = 0  # in flight
        self.steps_over = False  # since it ended, every step that may touch it has completed
        self.close: Callable[[], None] | None = None  # gives back what it still holds, once steps and copies are over
        self.barred = False  # a process that may have written its unpublished pages has died
        self.ended = False  # released or reclaimed; its pages wait for steps or copies

    @property
    def active(self) -> bool:
        return self.anchor is not None

    def activate(self, anchor: Node, table: PageTable, published: int, reserved: int) -> None:
        self.anchor = anchor
        self.table = table
        self.published = self.pending = self.written = published
        self.reserved = reserved

    def step_over(self) -> None:
        """Every step that may touch the ended lease has completed."""
        self.steps_over = True
        self._close_if_idle()

    def copy_over(self) -> None:
        """One of its copies has ended."""
        self.copies -= 1
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self.close is not None and self.steps_over and not self.copies:
            close, self.close = self.close, None
            close()

    def successor(self) -> Lease:
        """A waiting lease of the same id and tokens, to take this one's place."""
        # Tokens of its own: this lease may still publish, whatever becomes of the successor's.
        tokens = TokenBuffer(self.tokens.read(0, len(self.tokens)))
        return Lease(self.lease_id, self.session_id, self.namespace, tokens, self.priority, self.retain_seconds)
