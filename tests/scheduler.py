"""One scheduler as the cache sees it: a session that counts batches and steps."""

from typing import Self

from radixd.server.cache.namespace import Namespace
from radixd.server.cache.prefix_cache import CacheConfig, PrefixCache
from radixd.server.cache.results import AcquireResult, InsertResult, Publication, ReleaseResult
from radixd.server.cache.session import Dedup
from radixd.server.cache.step import StepMark

MODEL = b"model-1"


class Scheduler:
    """Drives one session of a cache, a Batch at a time.

    Synchronous unless `launch` is called: a Batch then says launched = completed, and what is given up is free at once.
    """

    def __init__(
        self, cache: PrefixCache, session_id: int = 1, *, model: bytes = MODEL, dedup: Dedup = Dedup.KEEP
    ) -> None:
        self.cache = cache
        self.id = session_id
        self.namespace = Namespace(model)
        self.launched = self.completed = self.seq = self.acked = 0
        cache.open_session(session_id, model, dedup)

    def batch(self, *, launch: int = 0, complete: bool = False, ack: bool = True) -> tuple[Publication, ...]:
        """End the Batch being built and begin the next; `launch` steps more are in flight, or all are `complete`.

        Returns the publications that the ended Batch's reply carries.
        """
        published = self.cache.take_publications(self.id)
        self.acked = self.seq if ack else self.acked
        self.seq += 1
        self.launched += launch
        if complete:
            self.completed = self.launched
        self.cache.advance(self.id, StepMark(self.seq, self.acked, self.launched, self.completed))
        return published

    def launch(self) -> int:
        """A Batch that says that one step more is in flight; returns the step."""
        self.batch(launch=1)
        return self.launched

    def finish(self) -> tuple[Publication, ...]:
        """A Batch that says that every step is finished; returns what replies have to carry since the last."""
        return self.batch(complete=True) + self.cache.take_publications(self.id)

    def acquire(
        self,
        tokens: bytes,
        *,
        max_tokens: int | None = None,
        allocate_to: int | None = None,
        reserve_to: int | None = None,
        priority: int = 50,
        retain_seconds: float | None = None,
        import_from_peers: bool = False,
    ) -> AcquireResult:
        return self.cache.acquire(
            self.id,
            self.namespace,
            tokens,
            max_tokens=max_tokens,
            allocate_to=allocate_to,
            reserve_to=reserve_to,
            priority=priority,
            retain_seconds=retain_seconds,
            import_from_peers=import_from_peers,
        )

    def insert(self, lease_id: int, written: int, *, after_step: int = 0, tokens: bytes = b"") -> InsertResult:
        return self.cache.insert(self.id, lease_id, written, after_step=after_step, tokens=tokens)

    def release(
        self, lease_id: int, *, publish_to: int = 0, after_step: int = 0, keep: bool = False, tokens: bytes = b""
    ) -> ReleaseResult:
        return self.cache.release(
            self.id, lease_id, publish_to=publish_to, after_step=after_step, keep=keep, tokens=tokens
        )

    def publish(self, tokens: bytes, *, priority: int = 50, retain_seconds: float | None = None) -> int:
        """A whole request: acquire, write, publish all of it, release. Returns the length published."""
        lease = self.acquire(tokens, priority=priority, retain_seconds=retain_seconds)
        return self.release(lease.lease_id, publish_to=len(tokens) // 4).published

    def cached(self, tokens: bytes) -> int:
        """How long a prefix is cached, its own last token included; nothing is refreshed."""
        return self.cache.match(self.id, self.namespace, tokens, max_tokens=len(tokens) // 4, peek=True).device_tokens

    @classmethod
    def alone(cls, config: CacheConfig) -> Self:
        """A scheduler with a cache of its own."""
        return cls(PrefixCache(config))
