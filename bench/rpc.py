"""The gRPC part: the daemon beside an echo on the same kind of server.

A pair sends the same request bytes, but for the seq, as the same messages over the same kind of call (unary to unary,
stream to stream) and receives the same reply bytes: the echo's are a reply that the daemon gave before.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from time import perf_counter_ns
from types import TracebackType
from typing import Self, TypeVar

from bench.calls import ACQUIRE, MATCH, MODEL
from bench.decode import DecodeBatch
from bench.echo_server import UNARY
from bench.looper import LOOPED_TOKENS, Looper
from bench.sampling import Side, medians, quantile, take_turns
from bench.scheduler import Sample, Scheduler
from bench.table import Row
from bench.workload import leaf_tokens
from radixd.client.aio import AsyncClient
from radixd.v1 import cache_pb2 as pb

T = TypeVar("T")

PAIRS = (("8K", 2**13, 1.3), ("1M", LOOPED_TOKENS, 1.6))  # tokens, and the target
SMALL_TOKENS = 2**10
REQUESTS = 64
SESSIONS = 8
TURN_NS = 20_000_000
P99_TURN_NS = 200_000_000


class RpcPart:
    """Measures its rows one after another, with `rounds` turns for each side of a row. A context: it owns the loop."""

    def __init__(self, daemon_socket: Path, echo_socket: Path, rounds: int) -> None:
        self._sockets = daemon_socket, echo_socket
        self._rounds = rounds
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        self._scheduler = self._run(Scheduler.connect(*self._sockets))
        for tokens in (SMALL_TOKENS, *(tokens for _, tokens, _ in PAIRS)):
            self._run(self._scheduler.publish(prompt(tokens)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._scheduler.close())
        self._runner.close()

    def _run(self, work: Coroutine[object, object, T]) -> T:
        return self._runner.run(work)

    def rows(self) -> Iterator[Row]:
        """All rows."""
        for label, tokens, target in PAIRS:
            yield from self._verbs(label, prompt(tokens), target)
        yield from self._decode()
        yield self._sessions_together()
        yield self._client_library()
        yield from self._beside_a_loop()

    def _verbs(self, label: str, tokens: bytes, target: float) -> Iterator[Row]:
        """Match and Acquire of a prompt that is cached to its last token."""
        match = pb.Match(max_tokens=len(tokens) // 4, tokens=tokens)
        acquire = pb.Acquire(max_tokens=len(tokens) // 4, tokens=tokens)
        scheduler = self._scheduler
        calls = {
            "Match, unary": scheduler.unary(MATCH, pb.MatchRequest(match=match), pb.MatchResponse),
            "Acquire, unary": scheduler.unary(ACQUIRE, pb.AcquireRequest(acquire=acquire), pb.AcquireResponse),
            "Match, stream": scheduler.batch(pb.Batch(operations=[pb.Operation(match=match)])),
            "Acquire, stream": scheduler.batch(pb.Batch(operations=[pb.Operation(acquire=acquire)])),
        }
        for name, call in calls.items():
            yield self._pair(f"{label} {name}", self._run(call), target)

    def _pair(self, name: str, samples: tuple[Sample, Sample], target: float | None = None) -> Row:
        taken = self._medians(dict(zip(("daemon", "echo"), samples, strict=True)))
        return Row(name, taken["daemon"], taken["echo"], "echo", target)

    def _decode(self) -> Iterator[Row]:
        """A step's Batch of many operations beside one of one, and beside its own echo."""
        many = self._run(self._decode_batch(self._scheduler, REQUESTS, number=0))
        one = self._run(self._decode_batch(self._scheduler, 1, number=REQUESTS))
        taken = self._medians({"many": many[0], "one": one[0]})
        yield Row(f"{REQUESTS} Allocates in a Batch", taken["many"], taken["one"], "1 in a Batch")
        # anew: an echo gives the reply of whoever asked for one last
        many = self._run(self._decode_batch(self._scheduler, REQUESTS, number=2 * REQUESTS))
        yield self._pair(f"{REQUESTS} Allocates in a Batch", many)

    async def _decode_batch(self, scheduler: Scheduler, requests: int, number: int) -> tuple[Sample, Sample]:
        batch = await DecodeBatch.open(scheduler, requests, 10**6 + number)
        return await scheduler.batch(batch.message, batch.next)

    def _sessions_together(self) -> Row:
        """A decode step of several sessions at once: how long until the last has its reply."""
        schedulers = [self._run(Scheduler.connect(*self._sockets)) for _ in range(SESSIONS)]
        samples = [
            self._run(self._decode_batch(scheduler, REQUESTS, number=(3 + index) * REQUESTS))
            for index, scheduler in enumerate(schedulers)
        ]
        daemon, echo = zip(*samples, strict=True)
        taken = self._medians({"daemon": slowest(daemon), "echo": slowest(echo), "one alone": daemon[0]})
        for scheduler in schedulers:
            self._run(scheduler.close())
        name = f"{SESSIONS} sessions' steps of {REQUESTS}, the slowest"
        return Row(name, taken["daemon"], taken["echo"], "echo", also={"one alone": taken["one alone"]})

    def _client_library(self) -> Row:
        """What radixd.client adds to the bare messages."""
        tokens = prompt(PAIRS[0][1])
        client = AsyncClient(self._sockets[0])
        session = self._run(client.open_session(model=MODEL))

        async def by_client() -> int:
            start = perf_counter_ns()
            await session.match(tokens)
            return perf_counter_ns() - start

        bare, _ = self._run(self._scheduler.batch(pb.Batch(operations=[pb.Operation(match=pb.Match(tokens=tokens))])))
        taken = self._medians({"client": by_client, "bare": bare})
        self._run(session.close())
        self._run(client.close())
        return Row("8K Match through AsyncClient", taken["client"], taken["bare"], "generated stubs")

    def _beside_a_loop(self) -> Iterator[Row]:
        """A small call while another client loops large ones."""
        small = pb.Match(tokens=prompt(SMALL_TOKENS))
        daemon, echo = self._run(self._scheduler.batch(pb.Batch(operations=[pb.Operation(match=small)])))
        loops = Looper(self._sockets[0], MATCH), Looper(self._sockets[1], UNARY)
        sides = {
            "daemon": beside(loops[0], self._side(daemon)),
            "echo": beside(loops[1], self._side(echo)),
        }
        taken = take_turns(sides, self._rounds, P99_TURN_NS)
        alone = self._medians({"daemon": daemon, "echo": echo})
        for loop in loops:
            loop.close()
        for name, fraction in (("p50", 0.5), ("p99", 0.99)):
            case = f"1K Match beside a client that loops 1M, {name}"
            theirs = quantile(taken["echo"], fraction)
            also = {"alone": alone["daemon"]}
            yield Row(case, quantile(taken["daemon"], fraction), theirs, "echo beside an echo loop", also=also)

    def _side(self, sample: Sample) -> Side:
        async def turn(repeats: int) -> list[int]:
            taken = [await sample() for _ in range(repeats)]
            await self._scheduler.release()
            return taken

        return lambda repeats: self._run(turn(repeats))

    def _medians(self, samples: dict[str, Sample]) -> dict[str, float]:
        return medians({name: self._side(sample) for name, sample in samples.items()}, self._rounds, TURN_NS)


def prompt(tokens: int) -> bytes:
    """A prompt of that length. The looper's is the first leaf; no other begins with its first page."""
    return leaf_tokens(0 if tokens == LOOPED_TOKENS else 2_000 + tokens, tokens).tobytes()


def slowest(samples: Sequence[Sample]) -> Sample:
    """All at once: nanoseconds until the last has its reply."""

    async def sample() -> int:
        start = perf_counter_ns()
        await asyncio.gather(*(one() for one in samples))
        return perf_counter_ns() - start

    return sample


def beside(loop: Looper, side: Side) -> Side:
    """The side, taking its turns while `loop` loops."""

    def turn(repeats: int) -> list[int]:
        with loop:
            return side(repeats)

    return turn
