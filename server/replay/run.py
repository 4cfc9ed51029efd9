"""One run from its daemon's start to its report."""

import time
from contextlib import ExitStack, closing
from typing import Literal

from radixd.server.replay.faults import Faults
from radixd.server.replay.fleet import Fleet
from radixd.server.replay.options import Options
from radixd.server.replay.own_daemon import OwnDaemon, own_daemon
from radixd.server.replay.page_counts import PageCounts
from radixd.server.replay.pool_admin import PoolAdmin
from radixd.server.replay.progress import ProgressLine
from radixd.server.replay.report import Report
from radixd.server.replay.scheduler import Job
from radixd.server.replay.workload import Workload


def replay(options: Options, workload: Workload, faults: Faults) -> Report:
    """Drive the daemon with all of `workload`. Raises CommandError or DaemonFailed where there is none to drive."""
    with ExitStack() as stack:
        daemon = stack.enter_context(own_daemon(options.pool)) if options.target is None else None
        target = str(daemon.socket) if daemon else str(options.target)
        admin = stack.enter_context(closing(PoolAdmin(target, options.pool_name)))
        lives = _Lives(admin, daemon)
        sessions = admin.occupancy().sessions
        began = time.monotonic()
        with ProgressLine(len(workload)) as progress:
            fleet = Fleet(
                len(workload),
                kill_every=options.kill_every,
                restart_every=options.restart_every,
                restart=lives.restart,
                watch=progress.show,
            )
            results = fleet.run(_jobs(options, faults, target, len(workload)))
        seconds = time.monotonic() - began
        pool = admin.settled(sessions)
        return Report(
            results=results,
            schedulers=options.schedulers,
            pool=pool,
            counts=lives.counts(),
            ledger=admin.ledger(pool),
            seconds=seconds,
        )


class _Lives:
    """The daemon's lives in one run, and what all of them have counted together."""

    def __init__(self, admin: PoolAdmin, daemon: OwnDaemon | None) -> None:
        self._admin = admin
        self._daemon = daemon
        self._before = PageCounts.of(admin.occupancy())
        """What this life had counted when the run, or the life, began."""
        self._ended = PageCounts()
        """What those that have ended counted."""

    def counts(self) -> PageCounts:
        """Since the run began."""
        return self._ended + (PageCounts.of(self._admin.occupancy()) - self._before)

    def restart(self) -> None:
        """End the life, one way or the other, and begin another. Raises DaemonFailed."""
        assert self._daemon is not None, "a daemon at --target is not ours to restart"
        self._ended, self._before = self.counts(), PageCounts()
        self._daemon.restart()


def _jobs(options: Options, faults: Faults, target: str, requests: int) -> list[Job]:
    """Every scheduler takes each so many-th request; one conversation's turns meet different schedulers."""
    return [
        Job(
            name=f"replay-{number}",
            target=target,
            pool=options.pool_name,
            dedup=_dedup(number),
            choice=options.workload,
            faults=faults,
            indices=tuple(range(number, requests, options.schedulers)),
            one_by_one=options.one_by_one,
            reconnects=len(range(number, options.reconnects, options.schedulers)),
            restarts=options.restart_every > 0,
        )
        for number in range(options.schedulers)
    ]


def _dedup(number: int) -> Literal["keep", "patch"]:
    """Both ways meet on one pool."""
    return "patch" if number % 2 else "keep"
