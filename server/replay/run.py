"""One run from its daemon's start to its report."""

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Literal

from radixd.server.replay.faults import Faults
from radixd.server.replay.fleet import Fleet
from radixd.server.replay.options import Options
from radixd.server.replay.own_daemon import OwnDaemon, own_daemon
from radixd.server.replay.pool_admin import PoolAdmin
from radixd.server.replay.pool_share import WatchedPool
from radixd.server.replay.progress import ProgressLine
from radixd.server.replay.report import Report
from radixd.server.replay.scheduler import Job
from radixd.server.replay.workload import Workload


def replay(options: Options, workload: Workload, faults: Faults) -> Report:
    """Drive the daemon with all of `workload`. Raises CommandError or DaemonFailed where there is none to drive."""
    with ExitStack() as stack:
        own = options.target is None
        daemon = stack.enter_context(own_daemon(options.pool, options.pool_names)) if own else None
        target = str(daemon.socket) if daemon else str(options.target)
        admins = [stack.enter_context(closing(PoolAdmin(target, name))) for name in options.pool_names]
        pools = [WatchedPool(admin) for admin in admins]
        jobs = scheduler_jobs(options, faults, target, len(workload))
        began = time.monotonic()
        with ProgressLine(len(workload)) as progress:
            fleet = Fleet(
                len(workload),
                kill_every=options.kill_every,
                restart_every=options.restart_every,
                restart=partial(_restart, daemon, pools),
                watch=progress.show,
            )
            results = fleet.run(jobs)
        seconds = time.monotonic() - began
        shares = [
            pool.share(results.outcomes_of(index for job in jobs if job.pool == name for index in job.indices))
            for name, pool in zip(options.pool_names, pools, strict=True)
        ]
        return Report(results, options.schedulers, tuple(shares), seconds)


def _restart(daemon: OwnDaemon | None, pools: Sequence[WatchedPool]) -> None:
    """End the daemon's life, one way or the other, and begin another. Raises DaemonFailed."""
    assert daemon is not None, "a daemon at --target is not ours to restart"
    for pool in pools:
        pool.end_life()
    daemon.restart()


def scheduler_jobs(options: Options, faults: Faults, target: str, requests: int) -> list[Job]:
    """Every scheduler takes each so many-th request; one conversation's turns meet different schedulers, and pools."""
    pools = len(options.pool_names)
    return [
        Job(
            name=f"replay-{number}",
            target=target,
            pool=options.pool_names[number % pools],
            dedup=_dedup(number // pools),
            choice=options.workload,
            faults=faults,
            indices=tuple(range(number, requests, options.schedulers)),
            one_by_one=options.one_by_one,
            reconnects=len(range(number, options.reconnects, options.schedulers)),
            restarts=options.restart_every > 0,
            import_from_peers=options.import_from_peers,
        )
        for number in range(options.schedulers)
    ]


def _dedup(number: int) -> Literal["keep", "patch"]:
    """Both ways meet on one pool."""
    return "patch" if number % 2 else "keep"
