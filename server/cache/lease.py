"""A lease: one request's tokens, its lock on a prefix, and its private pages."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from radixd.server.cache.namespace import Namespace
from radixd.server.cache.node import Node
from radixd.server.cache.page_table import PageTable
from radixd.server.cache.results import NO_PAGES
from radixd.server.cache.tokens import TokenBuffer


class LeaseState(StrEnum):
    """What a lease has, and with that, which verbs it accepts."""

    WAITING = "waiting"  # tokens alone
    ACTIVE = "active"  # a lock and a page table
    OFFLOADING = "offloading"  # on its way to the host: Match and Release only
    OFFLOADED = "offloaded"  # on the host: Match, Restore and Release only
    RESTORING = "restoring"  # on its way back: Match and Release only


class Waiting(Protocol):
    """A copy that fills a lease's prefix."""

    copy_id: int

    def leave(self, lease: Lease) -> None:
        """The lease has ended and waits no longer."""


class Lease:
    """One request. Lengths are in tokens: published ≤ pending, written ≤ known."""

    __slots__ = (
        "anchor", "barred", "close", "copies", "ended", "joined", "lease_id", "load", "locked_at", "namespace",
        "pending", "priority", "published", "readable", "reserved", "retain_seconds", "saved", "session_id", "state",
        "steps_over", "table", "tokens", "written",
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
        self.state = LeaseState.WAITING
        self.locked_at = 0.0  # clock time of the Acquire or Restore that made it active
        self.anchor: Node | None = None  # receipt of its lock, or keep: the end of the published prefix
        self.table = PageTable(NO_PAGES)
        self.published = 0
        self.pending = 0  # what Inserts that wait for a step will have published
        self.written = 0
        self.readable = 0  # bytes that were there when it became active, or will be once its copies have ended
        self.reserved = 0  # pages that it may still claim
        self.joined = 0  # of its prefix, pages that are arriving for another lease: reserved, should they not come
        self.load: Waiting | None = None  # the copy that fills its prefix
        self.saved = NO_PAGES  # host pages of its own
        self.copies = 0  # in flight
        self.steps_over = False  # since it ended, every step that may touch it has completed
        self.close: Callable[[], None] | None = None  # gives back what it still holds, once steps and copies are over
        self.barred = False  # a process that may have written its unpublished pages has died
        self.ended = False  # released or reclaimed; its pages wait for steps or copies

    @property
    def active(self) -> bool:
        """Has a lock and a page table, if perhaps on their way."""
        return self.state in (LeaseState.ACTIVE, LeaseState.OFFLOADING, LeaseState.RESTORING)

    def activate(self, anchor: Node, table: PageTable, published: int, reserved: int) -> None:
        """Takes what Acquire has got for it."""
        self.state = LeaseState.ACTIVE
        self.anchor = anchor
        self.table = table
        self.published = self.pending = self.written = self.readable = published
        self.reserved = reserved

    def leave_load(self) -> None:
        """Waits for its prefix no longer."""
        if self.load is not None:
            self.load.leave(self)
            self.load = None

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
