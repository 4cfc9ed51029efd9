"""The scheduler processes of a run: started, killed on request, replaced, and listened to until all work is done."""

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from radixd.server.replay.scheduler import Job, run_scheduler
from radixd.server.replay.tally import Failure, Outcome, Progress, Tally

POLL_SECONDS = 0.2

KILLED = (-signal.SIGKILL, -signal.SIGTERM)
"""Exit statuses of a process that was ended from outside; any other signal is a fault of its own."""

STALL_SECONDS = 300.0
"""Without any news for so long the run is given up."""


@dataclass(slots=True)
class Results:
    """What has happened so far."""

    requests: int
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    """By request index."""
    tally: Tally = field(default_factory=Tally)
    kills: int = 0
    outside_kills: int = 0
    """Schedulers that somebody else has killed; they are replaced too."""
    restarts: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def unfinished(self) -> int:
        """Requests without an outcome."""
        return self.requests - len(self.outcomes)

    def outcomes_of(self, indices: Iterable[int]) -> list[Outcome]:
        """Of these requests, those that have ended."""
        return [self.outcomes[index] for index in indices if index in self.outcomes]

    def count(self, end: str) -> int:
        """Requests that ended so."""
        return sum(outcome.end == end for outcome in self.outcomes.values())


@dataclass(slots=True, eq=False)
class _Scheduler:
    job: Job
    process: SpawnProcess
    pipe: Connection
    ended: int = 0
    """Requests that it has ended."""


class Fleet:
    """Runs jobs side by side.

    Args:
        kill_every: SIGKILL one scheduler whenever so many more requests have ended, and let a new one take over what it
            had not finished; 0: never.
        restart_every: restart the daemon whenever so many more requests have ended; 0: never.
        restart: does it. It may raise DaemonFailed.
        watch: called a few times a second.
    """

    def __init__(
        self,
        requests: int,
        *,
        kill_every: int,
        restart_every: int,
        restart: Callable[[], None],
        watch: Callable[[Results], None],
    ) -> None:
        self.results = Results(requests)
        self._kill_every = kill_every
        self._restart_every = restart_every
        self._restart = restart
        self._watch = watch
        self._spawn = multiprocessing.get_context("spawn")
        self._alive: list[_Scheduler] = []
        self._news = time.monotonic()

    def run(self, jobs: list[Job]) -> Results:
        """Until all jobs are done, or no longer can be."""
        try:
            for job in jobs:
                self._start(job)
            while self._alive and not self.results.failures:
                self._listen()
                self._kill_on_schedule()
                self._restart_on_schedule()
                self._watch(self.results)
                if time.monotonic() - self._news > STALL_SECONDS:
                    self.results.failures.append(f"nothing has finished for {STALL_SECONDS:.0f} s: given up")
        finally:
            for scheduler in self._alive:
                scheduler.process.kill()
                scheduler.process.join()
        return self.results

    def _start(self, job: Job) -> None:
        parent_end, child_end = self._spawn.Pipe(duplex=False)
        process = self._spawn.Process(target=run_scheduler, args=(job, child_end), name=job.name, daemon=True)
        process.start()
        child_end.close()
        self._alive.append(_Scheduler(job, process, parent_end))

    def _listen(self) -> None:
        ready = wait([scheduler.pipe for scheduler in self._alive], POLL_SECONDS)
        for scheduler in [scheduler for scheduler in self._alive if scheduler.pipe in ready]:
            if not self._receive(scheduler):
                self._finish(scheduler)

    def _receive(self, scheduler: _Scheduler) -> bool:
        """Take one message; False at the pipe's end, which a kill may have put into the middle of a message."""
        try:
            message: object = scheduler.pipe.recv()
        except (EOFError, OSError):
            return False
        self._news = time.monotonic()
        if isinstance(message, Progress):
            scheduler.ended += len(message.outcomes)
            self.results.outcomes.update((outcome.index, outcome) for outcome in message.outcomes)
            self.results.tally.add(message.tally)
        elif isinstance(message, Failure):
            self.results.failures.append(f"{scheduler.job.name}: {message.text}")
        return True

    def _finish(self, scheduler: _Scheduler) -> None:
        self._alive.remove(scheduler)
        scheduler.process.join()
        left = self._unfinished(scheduler.job)
        if left and scheduler.process.exitcode in KILLED:
            self.results.outside_kills += 1
            self._replace(scheduler, left)
        elif left and not self.results.failures:
            self.results.failures.append(
                f"{scheduler.job.name} ended with exit status {scheduler.process.exitcode}, {len(left)} requests undone"
            )

    def _kill_on_schedule(self) -> None:
        """One kill at most a turn. The victim is the busiest: one that has leases, and steps in flight."""
        due = len(self.results.outcomes) // self._kill_every if self._kill_every else 0
        victims = [scheduler for scheduler in self._alive if self._unfinished(scheduler.job)]
        if self.results.kills >= due or not victims:
            return
        victim = max(victims, key=lambda scheduler: scheduler.ended)
        victim.process.kill()
        while self._receive(victim):
            pass
        victim.process.join()
        self._alive.remove(victim)
        left = self._unfinished(victim.job)
        self.results.kills += 1
        if left:
            self._replace(victim, left)

    def _replace(self, killed: _Scheduler, left: tuple[int, ...]) -> None:
        name, kills = killed.job.name.partition("+")[0], self.results.kills + self.results.outside_kills
        self._start(replace(killed.job, name=f"{name}+{kills}", indices=left, reconnects=0))

    def _restart_on_schedule(self) -> None:
        due = len(self.results.outcomes) // self._restart_every if self._restart_every else 0
        if self.results.restarts < due and any(self._unfinished(scheduler.job) for scheduler in self._alive):
            self._restart()
            self.results.restarts += 1
            self._news = time.monotonic()

    def _unfinished(self, job: Job) -> tuple[int, ...]:
        return tuple(index for index in job.indices if index not in self.results.outcomes)
