"""What a step has done when it is over."""

from types import SimpleNamespace

import numpy as np

from radixd.client.tokens import Pages
from radixd.server.replay.fingerprint import Seeds
from radixd.server.replay.journal import Journal
from radixd.server.replay.kernel import Kernel
from radixd.server.replay.request import Request
from radixd.server.replay.running import Access, RunningRequest, Work
from radixd.server.replay.slot_bytes import NoBytes


class QueuedBytes(NoBytes):
    """Memory whose writes wait to be synchronised, as a GPU's do."""

    def __init__(self) -> None:
        self.queued = 0

    def write(self, pages: Pages, start: int, seeds: Seeds) -> int:
        self.queued += seeds.size
        return seeds.size

    def synchronize(self) -> None:
        self.queued = 0


def test_a_step_is_over_when_all_that_was_written_is_there() -> None:
    memory, journal = QueuedBytes(), Journal(lambda progress: None)
    kernel = Kernel(SimpleNamespace(session_id=1, launched=1, page_size=64), memory, journal)
    running = RunningRequest(Request(0, np.arange(100, dtype=np.uint32), np.arange(0, dtype=np.uint32)))
    access = Access(np.array([1, 2], dtype=np.int32), 0, running.seeds)
    kernel.write(access)
    assert memory.queued == 100
    kernel.run([])
    assert memory.queued == 0, "poison may be on its way while no step is"
    kernel.run([Work(running, (), (access,), 100)])
    assert (memory.queued, running.completed, journal.tally.bytes_written) == (0, 100, 200)
