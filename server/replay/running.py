"""One request inside an engine: how far its KV is launched and completed, and what its next step does."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from radixd.client import Lease
from radixd.client.tokens import Pages
from radixd.server.replay.fingerprint import Seeds, Tokens, garbage_seeds, root_seed, token_seeds
from radixd.server.replay.request import Request

MODEL: Final = b"radixd replay"

LOOKAHEAD_STEPS: Final = 2
"""Slots are asked for so many steps ahead, so that decode never waits for the answer."""


@dataclass(frozen=True, slots=True)
class Access:
    """Positions [start, start + seeds) of a page table as it was when the step was launched."""

    pages: Pages
    start: int
    seeds: Seeds


@dataclass(frozen=True, slots=True)
class Work:
    """One request's part in one step: KV up to `stop` is there when it has completed."""

    running: "RunningRequest"
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    stop: int


class RunningRequest:
    """Positions are tokens from the sequence's start: completed ≤ launched ≤ last.

    `last` is the length whose KV the request needs: the token sampled last needs none. The engine learns only from a
    completed step that it was the last one, so one step too many is always in flight when a request ends.
    """

    def __init__(self, request: Request, *, abort: bool = False, preempt: bool = False, drafts: int = 0) -> None:
        self.request = request
        self.abort = abort
        self.preempt = preempt
        """Still to be preempted on purpose, half way."""
        self.drafts = drafts
        """Draft tokens still to be written, all in one step, and rejected."""
        self.rejected = 0
        """Drafts that the step launched last writes in vain."""
        self.root = root_seed(MODEL, request.extra_key)
        self.tokens: Tokens = np.concatenate((request.prompt, request.output))
        self.seeds: Seeds = token_seeds(self.root, self.tokens)
        self.last = request.prompt.size + max(request.output.size, 1) - 1
        self.lease: Lease | None = None
        self.matched: int | None = None
        """What a Match has promised while it waits; None: ask."""
        self.waited = 0
        self.first_hit: int | None = None
        """What its first Acquire has found, once all of it has arrived."""
        self.first_host_hit = self.first_peer_hit = 0
        self.arriving = False
        """Bytes of its pages are on their way: it does nothing."""
        self.host_is_full = False
        """The host had no room for it: when it is preempted again, it is computed again."""
        self.reserve_all = False
        """After a preemption: reserve the whole length, so that there is no second one."""
        self.refused = False
        """The last Allocate met NO_PAGES."""
        self.launched = self.completed = self.inserted = 0
        self.prefill_to = request.prompt.size
        self._overran = False

    @property
    def held(self) -> Lease:
        """Its lease. RuntimeError before there is one."""
        if self.lease is None:
            raise RuntimeError(f"request {self.request.index} has no lease yet")
        return self.lease

    @property
    def done(self) -> bool:
        """Every token is sampled."""
        return self.completed >= self.last

    @property
    def wanted(self) -> int:
        """Length of the table that the coming steps need; the chunk's size is the caller's business."""
        ahead = self.launched + LOOKAHEAD_STEPS * (1 + self.drafts)
        return min(ahead, self.last + 1 + self.drafts)

    @property
    def whole_length(self) -> int:
        """Slots that it needs in the end."""
        return max(self.held.known, self.last + 1 + self.drafts)

    @property
    def half_way(self) -> bool:
        """Through what the cache did not give."""
        return 2 * self.launched >= (self.first_hit or 0) + self.last

    @property
    def untold(self) -> Tokens:
        """Tokens that steps launched so far have in, and the daemon does not know."""
        return self.tokens[self.held.known : self.launched]

    def start(self) -> None:
        """Its lease has become active: computing begins behind the hit, once that has arrived."""
        self.launched = self.completed = self.inserted = self.held.device_tokens
        self.arriving, self.refused = True, False

    def restore(self) -> None:
        """Its lease has pages again, for all that it had computed."""
        self.arriving, self.refused = True, False

    def arrive(self) -> None:
        """What is readable is there: all that was promised, or, after a copy that failed, less."""
        lease = self.held
        self.launched = self.completed = min(self.launched, lease.readable)
        self.inserted = min(self.inserted, self.launched)
        self.prefill_to = max(self.request.prompt.size, lease.known)
        if self.first_hit is None:
            self.first_hit = lease.device_tokens
            self.first_host_hit, self.first_peer_hit = lease.host_tokens, lease.peer_tokens
        self.arriving = False

    def retract(self) -> None:
        """Preempted: all pages are given back; what it published may be hit again."""
        self.matched, self.waited = None, 0
        self.reserve_all = True
        self.arriving = self.preempt = self.host_is_full = False

    def next_work(self, budget: int) -> Work | None:
        """Its part in the step now launched, at most `budget` prompt tokens; None: nothing, or no slots for it."""
        lease = self.held
        start, pages = self.launched, lease.pages
        if start < self.prefill_to:
            stop = min(self.prefill_to, start + budget, lease.allocated)
        elif start < self.last:
            stop = min(start + 1, lease.allocated)
        else:
            return self._overrun(pages)
        if stop == start:
            return None
        writes = [Access(pages, start, self.seeds[start:stop])]
        if self.drafts and self.prefill_to < stop and lease.allocated >= stop + self.drafts:
            writes.append(Access(pages, stop, garbage_seeds(self.root, stop, self.drafts)))
            self.rejected, self.drafts = self.drafts, 0
        self.launched = stop
        # An abort lets go of its prefix while this step is in flight: it had better attend to all of it.
        reads = (Access(pages, 0, self.seeds[:start]),) if self.abort else ()
        return Work(self, reads, tuple(writes), stop)

    def _overrun(self, pages: Pages) -> Work | None:
        """The step too many: attends to the whole sequence, writes a token that nobody wants."""
        if self._overran:
            return None
        self._overran = True
        reads = (Access(pages, 0, self.seeds[: self.last]),)
        if self.held.allocated <= self.last:
            return Work(self, reads, (), self.last)
        return Work(self, reads, (Access(pages, self.last, garbage_seeds(self.root, self.last, 1)),), self.last)
