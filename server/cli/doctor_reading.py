"""What `radixd doctor` has read, of all pools."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from radixd.server.cli.daemon_channel import CommandError
from radixd.server.doctor.evidence import Evidence, NodeFacts, SessionFacts
from radixd.server.doctor.expectation import Expectation
from radixd.server.doctor.finding import Finding
from radixd.server.doctor.scrape import Scrape
from radixd.server.doctor.stopped import daemon_silent


@dataclass(frozen=True)
class Reading:
    """One or two scrapes, and what only a running daemon tells."""

    origin: str
    """Where it is from, and over which time, for people."""
    pools: tuple[str, ...]
    now: Scrape
    before: Scrape | None
    seconds: float | None
    sessions: Mapping[str, tuple[SessionFacts, ...]] | None = None
    """By pool; None where a saved scrape is all there is."""
    trees: Mapping[str, tuple[NodeFacts, ...]] | None = None

    @property
    def silent(self) -> Finding | None:
        """That the daemon did not answer; it has no pools then."""
        return daemon_silent(self.now)

    def evidence(self, expected: Expectation | None) -> Iterator[Evidence]:
        """Of each pool."""
        for pool in self.pools:
            sessions = None if self.sessions is None else self.sessions.get(pool, ())
            tree = None if self.trees is None else self.trees.get(pool)
            yield Evidence(pool, self.now, self.before, self.seconds, sessions, tree, expected)


def chosen_pools(now: Scrape, wanted: str) -> tuple[str, ...]:
    """The scrape's pools, or the one that is wanted."""
    if not now.pools and not daemon_silent(now):
        raise CommandError("there is no pool in the scrape: save all of /metrics")
    if not wanted or not now.pools:
        return now.pools
    if wanted not in now.pools:
        raise CommandError(f"--pool: no pool {wanted[:64]!r} here; there are {', '.join(now.pools)}")
    return (wanted,)


def check_same_daemon(before: Scrape, now: Scrape) -> None:
    """Counters of two daemons cannot be compared."""
    if before.epoch != now.epoch:
        raise CommandError(
            "the daemon was started anew between the two scrapes: its counters began again; ask once more"
        )
