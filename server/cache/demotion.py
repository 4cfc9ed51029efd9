"""Device to host: what the tree would otherwise lose."""

from __future__ import annotations

import numpy as np

from radixd.server.cache.admission import Admission
from radixd.server.cache.config import CacheConfig, WritePolicy
from radixd.server.cache.copies import Copies
from radixd.server.cache.counters import Counters
from radixd.server.cache.host_space import HostSpace
from radixd.server.cache.node import Node
from radixd.server.cache.residence import Residence
from radixd.server.cache.results import CopyKind, PageIds
from radixd.server.cache.tier import Tier
from radixd.server.cache.tree import RadixTree, whole


class Demoter:
    """Copies nodes to the host: ahead of need (write_back), when they are published, or when they are hit again.

    write_back keeps `free_target_pages` device pages free. No Acquire then waits for a copy: it takes what is free, and
    the coldest nodes follow to the host behind its back. What demand outruns is evicted without a copy.
    """

    def __init__(
        self,
        config: CacheConfig,
        tree: RadixTree,
        residence: Residence,
        device: Tier,
        host: HostSpace,
        admission: Admission,
        copies: Copies,
        counters: Counters,
    ):
        self._config = config
        self._tree = tree
        self._residence = residence
        self._device = device
        self._host = host
        self._admission = admission
        self._copies = copies
        self._counters = counters
        self._leaving = 0  # device pages that a copy is to make free

    def make_room(self) -> None:
        """Starts as many copies, and frees as many copied pages, as the target of free pages asks for."""
        if not self._config.host_pages:
            return
        while (short := self._config.free_target_pages - self._device.ledger.free - self._leaving) > 0 and self._device:
            node = self._device.first()
            if node.size > short:
                self._tree.split(node, node.size - short)
            if len(node.host):
                self._counters.demoted_pages += node.size
                self._residence.drop_device(node)
            elif not self._admission.can_lock(self._residence.unlocked_pages(whole(node))) or not self.save(node):
                return
            else:
                self._leaving += node.size

    def save_path(self, node: Node, min_hits: int) -> None:
        """Copies what is on the device alone, of the path to a locked node, and has been hit so often."""
        while node.parent is not None:
            if node.hits >= min_hits and not len(node.host) and not node.saving and node.arriving is None:
                self.save(node, for_room=False)
            node = node.parent

    def save_arrived(self, node: Node) -> None:
        """Copies of the path to a locked node what the write policy has passed over while it was arriving."""
        if self._config.host_pages and not node.root.detached:
            if self._config.write_policy is WritePolicy.WRITE_THROUGH:
                self.save_path(node, min_hits=0)
            elif self._config.write_policy is WritePolicy.WRITE_THROUGH_SELECTIVE:
                self.save_path(node, min_hits=2)

    def save_all(self) -> int:
        """Starts to copy what the device alone holds, the last to be evicted first. Returns how many pages.

        A page is of use on the host only behind its whole prefix: as many prefixes are chosen as the host could hold,
        those that it holds already among them. max_copy_pages may leave some of the rest to another call.
        """
        planned = 0
        for node in self._worth_keeping():
            budget = self._config.max_copy_pages - self._copies.pages
            if budget <= 0 or not self._admission.can_lock(self._residence.unlocked_pages(whole(node))):
                break
            piece = self._tree.split(node, budget) if node.size > budget else node
            if not self.save(piece, for_room=False):
                break
            planned += piece.size
        return planned

    def _worth_keeping(self) -> list[Node]:
        """Nodes that have yet to be copied, parents first, of the prefixes that the host has room for."""
        room = self._host.capacity
        nodes = [node for node in self._tree if not node.root.detached]
        chosen: set[Node] = set()
        missing: list[Node] = []
        for node in sorted(nodes, key=self._device.rank, reverse=True):
            path = []
            while node.parent is not None and node not in chosen:
                path.append(node)
                node = node.parent
            for it in reversed(path):
                to_copy = not len(it.host) and not it.saving and it.arriving is None
                if it.size > room:
                    return [*missing, self._tree.split(it, room)] if room and to_copy else missing
                room -= it.size
                chosen.add(it)
                missing += [it] if to_copy else []
        return missing

    def save(self, node: Node, *, for_room: bool = True) -> bool:
        """Starts to copy a node to the host; it is locked until the copy has ended. False where there is no room."""
        if self._copies.pages + node.size > self._config.max_copy_pages:
            self._counters.demote_skipped_busy += node.size
            return False
        self._residence.lock(node)
        host_pages = self._host.claim(node.size)
        if host_pages is None:
            self._counters.demote_skipped_full += node.size
            self._residence.unlock(node)
            return False
        node.saving = True
        size = node.size

        def finish(error: str) -> None:
            self._leaving -= size if for_room else 0
            self._saved(node, host_pages, error)

        self._copies.plan(CopyKind.DEMOTE, node.pages.copy(), host_pages, finish, reserved=host_pages, anchor=node)
        return True

    def _saved(self, anchor: Node, host_pages: PageIds, error: str) -> None:
        attach(self._residence, self._host, anchor, host_pages, error or "flushed" * anchor.root.detached)
        self._counters.demote_failed_pages += len(host_pages) if error else 0
        self._residence.unlock(anchor)
        self.make_room()


def attach(residence: Residence, host: HostSpace, anchor: Node, host_pages: PageIds, error: str) -> None:
    """Gives copied pages to the nodes that the copied run has become since; frees those that are of no use."""
    end = len(host_pages)
    for node in list(anchor.upwards(end)):
        node.saving = False
        start = end - node.size
        piece = np.array(host_pages[start:end])
        end = start
        if error or len(node.host):
            host.free(piece)
        else:
            residence.give_host(node, piece)
