"""What the questions are asked of: one pool's numbers, and how far they reach."""

from collections.abc import Mapping
from dataclasses import dataclass

from radixd.server.doctor.expectation import Expectation
from radixd.server.doctor.scrape import Scrape


@dataclass(frozen=True)
class SessionFacts:
    """A session as operators see it. Pages are its own."""

    session_id: int
    name: str
    pids: tuple[int, ...]
    ended: bool
    idle_seconds: float
    active_leases: int
    leased: int
    reserved: int
    retired: int

    @property
    def title(self) -> str:
        """Which it is; a client's name for itself is quoted."""
        pids = f", pid {' '.join(map(str, self.pids))}" if self.pids else ""
        return f"session {self.session_id} {self.name!r}{pids}"


@dataclass(frozen=True)
class NodeFacts:
    """A node of the radix tree, and how many pages it has on the device."""

    pages: int
    locked: bool
    priority: int


@dataclass(frozen=True)
class Evidence:
    """One pool. What only a running daemon tells is None where a saved scrape is all there is."""

    pool: str
    now: Scrape
    before: Scrape | None = None
    """What counters are counted from; None: the daemon's start, at which all were 0."""
    seconds: float | None = None
    """That the counters cover; None: not known."""
    sessions: tuple[SessionFacts, ...] | None = None
    tree: tuple[NodeFacts, ...] | None = None
    expected: Expectation | None = None

    def gauge(self, name: str, **labels: str) -> float:
        """As it stands now. Raises Untold where the scrape has none."""
        return self.now.total(name, pool=self.pool, **labels)

    def gauges(self, name: str, label: str) -> Mapping[str, float]:
        """As they stand now, by a label."""
        return self.now.by(name, label, pool=self.pool)

    def lasting(self, name: str, **labels: str) -> float:
        """A gauge's least value of both scrapes: what was there all the time."""
        now = self.gauge(name, **labels)
        return now if self.before is None else min(now, self.before.total(name, pool=self.pool, **labels))

    def count(self, name: str, **labels: str) -> float:
        """By how much a counter has risen. Raises Untold where the scrape has none."""
        now = self.gauge(name, **labels)
        if self.before is None or not self.before.has(name, pool=self.pool, **labels):
            return now
        return now - self.before.total(name, pool=self.pool, **labels)

    def counts(self, name: str, label: str) -> Mapping[str, float]:
        """By how much the counters of a family have risen, by a label; those that have not are left out."""
        risen = {value: self.count(name, **{label: value}) for value in self.gauges(name, label)}
        return {value: by for value, by in risen.items() if by}

    @property
    def page_tokens(self) -> int:
        """Tokens of a page."""
        return int(self.gauge("radixd_page_tokens"))

    @property
    def pages(self) -> int:
        """Usable pages of the device tier: page 0 is nobody's."""
        system = self.gauge("radixd_pages", tier="device", state="system")
        return int(self.gauge("radixd_pool_pages", tier="device") - system)

    @property
    def has_host(self) -> bool:
        """Whether the pool has a host tier."""
        return self.now.has("radixd_pool_pages", pool=self.pool, tier="host")

    @property
    def acquires(self) -> int:
        """Acquires that were granted."""
        return int(self.count("radixd_hit_length_tokens_count"))

    @property
    def prompt_tokens(self) -> float:
        """Of a granted Acquire, on average; 0 without any."""
        return self.count("radixd_requested_tokens_total") / self.acquires if self.acquires else 0.0
