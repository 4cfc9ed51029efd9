"""The client's verbs against a real daemon."""

import numpy as np
import pytest

from radixd.client import (
    Client,
    DependencyFailed,
    LeaseStatus,
    LimitExceeded,
    NeverFits,
    NoLease,
    NoPages,
    NotActive,
    Session,
    Skipped,
)
from tests.e2e.client.conftest import WITH_MEMORY, P, tokens
from tests.e2e.conftest import StartDaemon
from tests.e2e.daemon_process import MODEL, PATIENCE_S, DaemonProcess, eventually

pytestmark = pytest.mark.usefixtures("memory")


def test_a_request_from_acquire_to_release(session: Session):
    prompt = tokens(200)
    lease = session.acquire(prompt, allocate_to=130, reserve_to=300)
    assert (lease.device_tokens, lease.known, lease.allocated) == (0, 200, 192)
    assert lease.allocate(250, tokens=[7, 8]).size == 1
    assert (lease.known, lease.allocated) == (202, 256)
    assert lease.insert(200).published == 192
    assert lease.free(202) == 0
    assert session.match(prompt).device_tokens == 192
    assert session.match(prompt, cache_salt=b"other").device_tokens == 0
    again = session.acquire(prompt)
    assert again.device_tokens == 192
    assert again.pages[:3].tolist() == lease.pages[:3].tolist()
    assert lease.release().freed_pages == 1
    with pytest.raises(NoLease):
        lease.allocate(400)
    again.release()
    occupancy = session.keep_alive()
    assert (occupancy.evictable, occupancy.leased) == (3, 0)


def test_a_waiting_lease_is_matched_and_activated_by_id(session: Session):
    prompt = tokens(200)
    session.acquire(prompt).insert(200)
    lease = session.wait(prompt)
    assert lease.match().device_tokens == 192
    assert lease.activate(allocate_to=200) is lease
    assert lease.device_tokens == 192
    lease.release(keep=True, tokens=[1, 2])
    assert (lease.known, lease.allocated) == (202, 0)
    assert lease.match().device_tokens == 192


def test_one_batch_opens_uses_and_groups(session: Session):
    batch = session.batch()
    opened = batch.acquire(tokens(100))
    grown = batch.allocate(opened, 129)
    too_big = batch.acquire(tokens(90 * P, 1), reserve_to=99 * P)
    behind = batch.acquire(tokens(10, 2))
    batch.group(1, too_big, behind)
    orphan = batch.allocate(too_big, 100 * P)
    reply = batch.send().result()
    assert opened.result().allocated == 192
    assert grown.result().size == 1
    assert isinstance(too_big.error, NoPages)
    assert {"needed", "free", "evictable", "retired", "reserved"} <= set(too_big.error.facts)
    assert too_big.error.retry_after is not None
    assert isinstance(behind.error, Skipped)
    assert isinstance(orphan.error, DependencyFailed)
    assert reply.device.leased == 3


def test_refusals_say_what_would_fit(session: Session):
    with pytest.raises(NeverFits) as never:
        session.acquire(tokens(101 * P))
    assert never.value.facts["max_pages"] == "100"
    with pytest.raises(LimitExceeded):
        session.match(np.zeros(session.limits.tokens + 1, np.uint32))
    with pytest.raises(LimitExceeded):
        session.match(np.zeros(session.limits.message_bytes // 4, np.uint32))
    assert session.match([]).device_tokens == 0


def test_a_lease_comes_back_from_the_host_on_other_pages(start_daemon: StartDaemon):
    daemon = start_daemon(*WITH_MEMORY, "--host-tokens", "6400").serving()
    with Client(daemon.socket) as client, client.open_session(model=MODEL) as session:
        attachment, lease = session.attach(), session.acquire(tokens(200))
        rows = attachment.views[0].page_rows[0]
        kept = [rows[int(page)].clone().fill_(i + 1) for i, page in enumerate(lease.pages)]
        for page, content in zip(lease.pages, kept, strict=True):
            rows[int(page)].copy_(content)
        lease.insert(200)
        assert lease.offload() == 4
        assert lease.status is LeaseStatus.OFFLOADING
        with pytest.raises(NotActive):
            lease.allocate(300)
        lease.wait_saved(PATIENCE_S)
        assert (lease.status, lease.allocated, lease.known, lease.written) == (LeaseStatus.OFFLOADED, 0, 200, 200)
        other = session.acquire(tokens(99 * P, 1))
        with pytest.raises(NoPages):
            lease.restore()
        other.release()
        assert lease.restore(allocate_to=256, reserve_to=300) is lease
        lease.wait_loaded(PATIENCE_S)
        assert (lease.status, lease.readable, lease.allocated) == (LeaseStatus.ACTIVE, 200, 256)
        for page, content in zip(lease.pages, kept, strict=True):
            assert rows[int(page)].equal(content)
        assert session.host is not None
        assert session.host.total == 100
        del rows


def test_a_copy_that_does_not_end_is_not_waited_for_for_ever(session: Session):
    lease = session.acquire(tokens(64))
    lease.loading = frozenset({404})
    with pytest.raises(TimeoutError, match="still active after 0"):
        lease.wait_loaded(0.01)


def test_many_batches_in_flight_are_answered_in_order(session: Session):
    batches = [session.batch() for _ in range(50)]
    for i, batch in enumerate(batches):
        batch.match(tokens(100, i))
    futures = [batch.send() for batch in batches]
    seqs = [future.result().seq for future in futures]
    assert seqs == list(range(seqs[0], seqs[0] + 50))


def test_patches_come_at_the_step_boundary_and_the_copies_go_free(daemon: DaemonProcess):
    prompt = tokens(128)
    with Client(daemon.socket) as client, client.open_session(model=MODEL, dedup="patch") as session:
        first, second = session.acquire(prompt), session.acquire(prompt)
        session.step(launched=1, completed=0)
        first.insert(128)
        second.insert(128)
        session.step(launched=2, completed=1)
        session.keep_alive()
        own = second.pages
        session.step(launched=3, completed=2)
        assert second.pages.tolist() == first.pages.tolist()
        assert not set(own.tolist()) & set(first.pages.tolist())
        session.keep_alive()
        session.step(completed=3)
        assert session.keep_alive().leased == 0
        assert session.keep_alive().protected == 2


def test_an_idle_session_reports_its_last_step_by_itself(session: Session):
    lease = session.acquire(tokens(64))
    session.step(launched=1, completed=0)
    lease.release()
    session.step(completed=1)
    eventually(lambda: session.device is not None and session.device.retired == 0)
