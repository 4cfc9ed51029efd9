"""Two pools of random schedulers that import from each other, late and with failures: every byte is where it is said.

Each pool is a TierMachine's world, with all that may happen in one; what a rule does, it does to the world at hand.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from radixd.server.cache.config import WritePolicy
from radixd.server.cache.importing import Peer
from radixd.server.cache.results import ImportPlan
from radixd.server.cache.speculative import Speculative
from tests.property.machines import run_machine
from tests.property.test_tiers_machine import PICK, SEQUENCES, SIZES, TierMachine
from tests.property.tier_bytes import Content, Junk

NAMES = ("left", "right")


@dataclass
class RunningImport:
    """An import that has begun, and what its sources held then."""

    borrower: str
    plan: ImportPlan
    sources: list[Content]


class PeerMachine(TierMachine):
    """Two pools at a time. A rule is what happens in the one at hand, or between the two."""

    @initialize(
        left=st.fixed_dictionaries({**SIZES, "import_min_pages": st.integers(1, 3)}),
        right=st.fixed_dictionaries({**SIZES, "import_min_pages": st.integers(1, 3)}),
        sequences=st.lists(SEQUENCES, max_size=4),
    )
    def make(self, left: dict[str, Any], right: dict[str, Any], sequences: list[tuple[str, int]]) -> None:  # type: ignore[override]
        self.time = 0.0
        self.imports: list[RunningImport] = []
        self.worlds: dict[str, dict[str, Any]] = {}
        self.asks_peers = True
        for name, sizes in zip(NAMES, (left, right), strict=True):
            self.name = name
            self._begin(sizes)
            self.worlds[name] = self._world()
        for name in NAMES:
            self.worlds[name]["cache"].importer.peers = (self._peer(_other(name)),)
        for sequence in sequences:
            self.serve(0, sequence)
        self._enter("left")

    def _peer(self, name: str) -> Peer:
        return Peer(name, self.worlds[name]["cache"].lender, lambda: True)

    # --- worlds

    def _world(self) -> dict[str, Any]:
        """What makes up the pool at hand."""
        own = ("config", "bytes", "journal", "sessions", "leases", "unproved", "moves", "numbers", "cache")
        return {field: getattr(self, field) for field in own}

    def _enter(self, name: str) -> None:
        self.worlds[self.name] = self._world()
        self.name = name
        self.__dict__.update(self.worlds[name])

    @contextmanager
    def _in(self, name: str) -> Iterator[None]:
        before = self.name
        self._enter(name)
        yield
        self._enter(before)

    @rule(asks_peers=st.sampled_from([True, True, True, False]))
    def cross(self, asks_peers: bool) -> None:
        """Goes over to the other pool."""
        self._enter(_other(self.name))
        self.asks_peers = asks_peers

    def _restart(self) -> None:
        """Both pools die with one daemon, which leaves nothing between them to test: they are flushed instead."""
        for name in NAMES:
            with self._in(name):
                self.cache.flush()
                self.turn()

    # --- copies between the two

    @invariant()
    def turn(self) -> None:
        for plan in self.cache.take_imports():
            self._begin_import(plan)
        super().turn()
        if self.imports:
            with self._in(_other(self.name)):
                super().turn()

    def _begin_import(self, plan: ImportPlan) -> None:
        sources, targets = plan.source_pages.tolist(), plan.target_pages.tolist()
        assert plan.peer == _other(self.name)
        assert len(sources) == len(targets) == len(set(sources)) == len(set(targets))
        self.bytes.check_unused(targets)
        self.bytes.device |= {page: Junk("under import", plan.copy_id) for page in targets}
        self.bytes.pinned[plan.copy_id] = set(targets)
        lender = self.worlds[plan.peer]["bytes"]
        lender.pinned[plan.loan_id] = set(sources)
        self.imports.append(RunningImport(self.name, plan, [lender.device.get(page) for page in sources]))

    @rule(at=PICK, failed=st.sampled_from([False, False, True]), told=st.booleans())
    def finish_import(self, at: int, failed: bool, told: bool) -> None:
        """One of the imports ends; a failed one has written half of its pages."""
        if not self.imports:
            return
        ended = self.imports.pop(at % len(self.imports))
        plan, error = ended.plan, "the device said no" if failed else ""
        with self._in(plan.peer):
            held = [self.bytes.device.get(page) for page in plan.source_pages.tolist()]
            assert held == ended.sources, "a source changed under the import"
            del self.bytes.pinned[plan.loan_id]
            self.cache.finish_copy(plan.loan_id)
            self.turn()
        with self._in(ended.borrower):
            targets = plan.target_pages.tolist()
            assert all(self.bytes.device[page] == Junk("under import", plan.copy_id) for page in targets)
            written = len(targets) // 2 if failed else len(targets)
            self.bytes.device.update(zip(targets[:written], ended.sources[:written], strict=True))
            del self.bytes.pinned[plan.copy_id]
            self.cache.finish_copy(plan.copy_id, error)
            self.turn()
            for session in self.sessions.values() if told else ():
                self._advance(session)

    @rule(pick=PICK, sequence=SEQUENCES)
    def follow(self, pick: int, sequence: tuple[str, int]) -> None:
        """One pool serves a request, the other a like one."""
        self.serve(pick, sequence)
        self._enter(_other(self.name))
        self.asks_peers = True
        self.open(pick, 1, sequence, most=True, ahead=1, reserve=0, priority=50, retain=None, wait=False)

    def teardown(self) -> None:
        if not hasattr(self, "worlds"):
            return
        self.turn()
        while self.imports:
            self.finish_import(0, failed=False, told=False)
        for name in NAMES:
            with self._in(name):
                super().teardown()


def _other(name: str) -> str:
    return NAMES[name == NAMES[0]]


@pytest.mark.parametrize("write_policy", list(WritePolicy))
@pytest.mark.parametrize("mode", list(Speculative))
def test_every_byte_that_pools_import_is_where_it_is_said(mode: Speculative, write_policy: WritePolicy) -> None:
    run_machine(PeerMachine, 30 if mode is Speculative.NONE else 12, mode=mode, write_policy=write_policy)
