"""A pool's imports from other pools of the daemon: who its peers are, and the copies that bring their pages."""

from collections.abc import Iterable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Protocol

from radixd.gpu_pool.handle import memory_kind
from radixd.server.cache.importing import Peer
from radixd.server.cache.results import ImportPlan
from radixd.server.pools.copier import Copier
from radixd.server.pools.traffic import Traffic
from radixd.server.sessions.fault import guarded
from radixd.server.sessions.served_pool import ServedPool

if TYPE_CHECKING:
    from radixd.gpu_pool.memory import PoolMemory


class ImportingPool(ServedPool, Protocol):
    """A pool whose pages can be copied to and from."""

    @property
    def memory(self) -> "PoolMemory | None":
        """None where there is none."""


class PeerImports:
    """Everything but the copier's work belongs to the loop.

    An import is a copy in two caches: a loan of the peer, which must be given back whatever becomes of the borrower,
    and a load of the borrower, which must end whatever becomes of the peer.
    """

    def __init__(self, pool: ImportingPool, copier: Copier, traffic: Traffic) -> None:
        self._pool = pool
        self._copier = copier
        self._traffic = traffic
        self._peers: dict[str, ImportingPool] = {}

    @property
    def peers(self) -> tuple[str, ...]:
        """The pools that this one may import from; they may import from it."""
        return tuple(self._peers)

    def meet(self, pools: Iterable[ImportingPool]) -> None:
        """Learn of the daemon's pools, this one among them."""
        self._peers = {it.name: it for it in pools if it is not self._pool and _alike(it, self._pool)}
        self._pool.cache.importer.peers = tuple(
            Peer(peer.name, peer.cache.lender, partial(_is_served, peer)) for peer in self._peers.values()
        )

    def turn(self) -> None:
        """Start what the cache has planned."""
        for plan in self._pool.cache.take_imports():
            self._submit(plan, self._peers[plan.peer])

    def give_back(self) -> None:
        """The pool is served no longer: return the loans that no copy has begun to read."""
        for plan in self._pool.cache.take_imports():
            _end(self._peers[plan.peer], plan.loan_id, "")

    def _submit(self, plan: ImportPlan, peer: ImportingPool) -> None:
        nbytes = len(plan.target_pages) * self._pool.geometry.bytes_per_page * self._pool.devices
        self._traffic.begin(plan.copy_id, "import", nbytes)

        def done(error: str) -> None:
            self._traffic.end(plan.copy_id, error)
            self._finish(plan, peer, error)

        self._copier.submit(lambda: self._begin(plan, peer), done)

    def _begin(self, plan: ImportPlan, peer: ImportingPool) -> Future[None] | None:
        """On the copier's thread."""
        if self._pool.memory is None:
            return None  # a pool without memory, whose peers have none either
        if peer.memory is None:
            raise RuntimeError(f"pool {peer.name} has no memory")
        from radixd.gpu_pool.peer_copy import import_pages

        return import_pages(peer.memory, plan.source_pages, self._pool.memory, plan.target_pages)

    def _finish(self, plan: ImportPlan, peer: ImportingPool, error: str) -> None:
        _end(peer, plan.loan_id, "")
        if not _is_served(peer):  # nobody knows what its pages held
            error = error or f"pool {peer.name}, which lent them, was stopped"
        _end(self._pool, plan.copy_id, error)
        peer.turn()
        if not error:  # what fails may fail again at once: the next step or tick is soon enough to try
            self._pool.turn()


def _end(pool: ServedPool, copy_id: int, error: str) -> None:
    if pool.broken is None:
        with guarded(pool, "finishing an import"):
            pool.cache.finish_copy(copy_id, error)


def _is_served(pool: ImportingPool) -> bool:
    """Not where its memory is lost and the loop will hear of it only later."""
    return pool.broken is None and (pool.memory is None or pool.memory.lost is None)


def _alike(one: ImportingPool, other: ImportingPool) -> bool:
    """Whether a page means the same in both, byte for byte, and one's memory can be copied to the other's."""
    return (
        one.geometry.fingerprint == other.geometry.fingerprint
        and one.cache.lender.page_bytes == other.cache.lender.page_bytes
        and memory_kind(one.device_kind) == memory_kind(other.device_kind)
    )
