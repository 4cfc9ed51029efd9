"""With kernels in flight, nothing is given away, copied or published before the step that writes it is completed."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from radixd.client import NoPages, Session
from radixd.client.attach import Attachment
from radixd.gpu_pool.cuda.gpu import Gpu
from tests.e2e.conftest import StartDaemon
from tests.e2e.daemon_process import PATIENCE_S
from tests.gpu.conftest import OpenSession
from tests.gpu.kernel import LateStream

pytestmark = pytest.mark.gpu

P = 64
ALL = 100 * P


def prompt(number: int, tokens: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 2**32, tokens, dtype=np.uint32)


def page_rows(memory: Attachment, page: int) -> torch.Tensor:
    """One page, contiguous in page_first."""
    return memory.views[0].page_rows[0][page]


@pytest.fixture
def stream(gpu: Gpu) -> Iterator[LateStream]:
    stream = LateStream(gpu.ordinal)
    yield stream
    stream.close()


@pytest.fixture
def session(start_gpu_daemon: StartDaemon, open_session: OpenSession) -> Session:
    return open_session(start_gpu_daemon("--host-tokens", str(ALL)))


def test_pages_that_a_step_may_write_are_nobody_elses(session: Session, stream: LateStream) -> None:
    memory = session.attach()
    lease = session.acquire(prompt(1, ALL))
    page = int(lease.pages[7])
    stream.fill(page_rows(memory, page), 1)
    session.step(launched=1)
    lease.release()
    with pytest.raises(NoPages):
        session.acquire(prompt(2, ALL))
    stream.finish()
    session.step(completed=1)
    again = session.acquire(prompt(2, ALL))
    page_rows(memory, page).zero_()
    assert not page_rows(memory, page).any()
    assert page in again.pages


def test_an_offload_saves_what_the_step_in_flight_writes(session: Session, stream: LateStream) -> None:
    memory = session.attach()
    lease = session.acquire(prompt(1, 10 * P))
    before = lease.pages.copy()
    for i, page in enumerate(before):
        stream.fill(page_rows(memory, int(page)), i + 1)
    session.step(launched=1)
    lease.offload()
    stream.finish()
    session.step(completed=1)
    lease.wait_saved(PATIENCE_S)
    for page in before:  # the device's pages are others' now
        page_rows(memory, int(page)).fill_(99)
    torch.cuda.synchronize() if torch.cuda.is_available() else None
    lease.restore()
    lease.wait_loaded(PATIENCE_S)
    for i, page in enumerate(lease.pages):
        assert (page_rows(memory, int(page)) == i + 1).all()


def test_what_is_matchable_is_written(session: Session, stream: LateStream, open_session: OpenSession) -> None:
    memory = session.attach()
    tokens = prompt(3, 4 * P)
    lease = session.acquire(tokens)
    for page in lease.pages:
        stream.fill(page_rows(memory, int(page)), 5)
    session.step(launched=1)
    lease.insert(4 * P, after_step=1)
    assert session.match(tokens, max_tokens=4 * P).device_tokens == 0
    stream.finish()
    session.step(completed=1)
    session.keep_alive()
    hit = session.acquire(tokens, max_tokens=4 * P)
    assert hit.readable == 4 * P
    for page in hit.pages:
        assert (page_rows(memory, int(page)) == 5).all()
