"""One run from its daemon's start to its report."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Literal

from radixd.server.replay.faults import Faults
from radixd.server.replay.fleet import Fleet
from radixd.server.replay.options import Options
from radixd.server.replay.own_daemon import own_daemon
from radixd.server.replay.pool_admin import PoolAdmin
from radixd.server.replay.progress import ProgressLine
from radixd.server.replay.report import Report
from radixd.server.replay.scheduler import Job
from radixd.server.replay.workload import Workload


def replay(options: Options, workload: Workload, faults: Faults) -> Report:
    """Drive the daemon with all of `workload`. Raises CommandError or DaemonFailed where there is none to drive."""
    with _daemon(options) as target, closing(PoolAdmin(target, options.pool_name)) as admin:
        before = admin.occupancy()
        began = time.monotonic()
        with ProgressLine(len(workload)) as progress:
            results = Fleet(len(workload), options.kill_every, progress.show).run(
                _jobs(options, faults, target, len(workload))
            )
        seconds = time.monotonic() - began
        after = admin.settled(before.sessions)
        ledger = admin.ledger(after)
    return Report(
        results=results,
        schedulers=options.schedulers,
        pool=after,
        evicted_pages=after.evicted_pages - before.evicted_pages,
        ledger=ledger,
        seconds=seconds,
    )


@contextmanager
def _daemon(options: Options) -> Iterator[str]:
    if options.target is not None:
        yield options.target
    else:
        with own_daemon(options.pool) as socket:
            yield socket


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
        )
        for number in range(options.schedulers)
    ]


def _dedup(number: int) -> Literal["keep", "patch"]:
    """Both ways meet on one pool."""
    return "patch" if number % 2 else "keep"
