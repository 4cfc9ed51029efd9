"""What becomes of an Insert: published now, or when its step has completed."""

from __future__ import annotations

from collections.abc import Callable

from radixd.server.cache.config import CacheConfig, WritePolicy
from radixd.server.cache.counters import Counters
from radixd.server.cache.demotion import Demoter
from radixd.server.cache.lease import Lease
from radixd.server.cache.publication import Publisher
from radixd.server.cache.results import InsertResult, Publication, TablePatch
from radixd.server.cache.session import Dedup, Session, Superseded


class Insertion:
    """Publishes in a session's name: its replies carry what came of it."""

    def __init__(
        self,
        config: CacheConfig,
        publisher: Publisher,
        demoter: Demoter,
        counters: Counters,
        clock: Callable[[], float],
    ):
        self._config = config
        self._publisher = publisher
        self._demoter = demoter
        self._counters = counters
        self._clock = clock

    def insert(self, session: Session, lease: Lease, written: int, after_step: int) -> InsertResult:
        """Publishes up to `written` tokens, once `after_step` has completed."""
        if after_step <= session.fence.completed:
            patches = self.publish(session, lease, written)
            session.carry_patches()
            return InsertResult(lease.published, False, patches)
        # What is known now decides how far: tokens may be given up and others appended before the step has completed.
        reach = self._publisher.reach(lease, written)
        lease.pending = max(lease.pending, reach)
        session.fence.after(after_step, lambda: self._publish_later(session, lease, reach))
        return InsertResult(lease.published, True, ())

    def publish(self, session: Session, lease: Lease, written: int) -> tuple[TablePatch, ...]:
        """Publishes now; pages patched out wait until the reply that carries the patch is acknowledged."""
        # No reply will carry a patch to an ended lease: it keeps its duplicates, and gives them up with the rest.
        dedup = Dedup.KEEP if lease.ended else session.dedup
        before = lease.published
        published = self._publisher.publish(lease, written, dedup, self._clock())
        grown = (lease.published - before) // self._config.page_size
        self._counters.inserted_pages += published.adopted
        self._counters.duplicate_pages += grown - published.adopted
        if grown and self._config.write_policy is WritePolicy.WRITE_THROUGH and lease.anchor is not None:
            self._demoter.save_path(lease.anchor, min_hits=0)
        if len(published.replaced):
            session.superseded.append(Superseded(lease, published.replaced))
        return published.patches

    def _publish_later(self, session: Session, lease: Lease, written: int) -> None:
        patches = self.publish(session, lease, written)
        if not lease.ended:
            session.publications.append(Publication(lease.lease_id, lease.published, patches))
