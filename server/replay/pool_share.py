"""One pool's part in a run, over all the lives of its daemon."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from radixd.server.replay.hits import Hits
from radixd.server.replay.page_counts import PageCounts
from radixd.server.replay.pool_admin import Ledger, PoolAdmin
from radixd.server.replay.tally import Outcome
from radixd.v1 import admin_pb2


@dataclass(frozen=True, slots=True)
class PoolShare:
    """What became of one pool."""

    pool: admin_pb2.PoolOccupancy
    """When the run was over."""
    hits: Hits
    counts: PageCounts
    ledger: Ledger

    @property
    def name(self) -> str:
        """The daemon's for it."""
        return self.pool.pool

    @property
    def kind(self) -> str:
        """What it is made of."""
        pool = self.pool
        text = f"{pool.geometry}, {pool.device_kind}, {pool.layout}, {pool.policy}, {pool.device.total:,} pages"
        return f"{text}; host tier of {pool.host.total:,} pages, {pool.write_policy}" if pool.host.total else text

    def figures(self) -> dict[str, object]:
        """As plain data."""
        return {
            "pool": self.name,
            "requests": self.hits.requests,
            **self.hits.figures(),
            **asdict(self.counts),
            "evicted_pages": self.counts.left_device,
            "ledger_ok": self.ledger.ok,
            "ledger": asdict(self.ledger),
        }


class WatchedPool:
    """A pool while the run goes on; each life of its daemon counts from zero."""

    def __init__(self, admin: PoolAdmin) -> None:
        self._admin = admin
        began = admin.occupancy()
        self._sessions = began.sessions
        """Of others: they stay."""
        self._before = PageCounts.of(began)
        """What this life had counted when the run, or the life, began."""
        self._ended = PageCounts()
        """What those that have ended counted."""

    def end_life(self) -> None:
        """The daemon is about to be restarted."""
        self._ended, self._before = self._counts(), PageCounts()

    def share(self, outcomes: Iterable[Outcome]) -> PoolShare:
        """All schedulers have left; `outcomes` are those of this pool's."""
        pool = self._admin.settled(self._sessions)
        return PoolShare(pool, Hits.of(outcomes), self._counts(), self._admin.ledger(pool))

    def _counts(self) -> PageCounts:
        return self._ended + (PageCounts.of(self._admin.occupancy()) - self._before)
