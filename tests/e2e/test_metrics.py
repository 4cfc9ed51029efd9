"""What a daemon's metrics say of what schedulers did, and that the documentation says the same."""

import re
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from radixd.v1 import admin_pb2, cache_pb2, session_pb2
from tests.e2e.conftest import StartDaemon
from tests.e2e.daemon_process import PATIENCE_S, DaemonProcess
from tests.e2e.scraped import Scrape, families
from tests.e2e.test_host_tier import flags
from tests.sequences import ramp

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<type>\w+) \| (?P<labels>[\w, ]*?) ?\| [\w, 0-9]+ \| .+ \|$", re.MULTILINE)
SALTS = 10_000
NAMES = 500


@pytest.fixture
def daemon(start_daemon: StartDaemon) -> DaemonProcess:
    return start_daemon("--metrics", "127.0.0.1:0").serving()


class Stream:
    """A scheduler that sends Batches and never retries."""

    def __init__(self, daemon: DaemonProcess, session: session_pb2.OpenSessionResponse) -> None:
        self._daemon = daemon
        self._session = session
        self._seq = 0

    def send(self, *operations: cache_pb2.Operation) -> cache_pb2.BatchReply:
        """One Batch on a stream of its own."""
        self._seq += 1
        session = self._session
        call = cache_pb2.Call(
            session_id=session.session_id, secret=session.secret, epoch=session.epoch, seq=self._seq, ack=self._seq - 1
        )
        batch = cache_pb2.Batch(call=call, operations=operations)
        (reply,) = self._daemon.cache.Schedule(iter([batch]), timeout=PATIENCE_S)
        return reply


def acquire(tokens: bytes, salt: str = "") -> cache_pb2.Operation:
    operation = cache_pb2.Operation(acquire=cache_pb2.Acquire(tokens=tokens))
    if salt:
        operation.acquire.namespace.cache_salt = salt.encode()
    return operation


def release(lease_id: int, publish_to: int = 0) -> cache_pb2.Operation:
    lease = cache_pb2.LeaseRef(id=lease_id)
    return cache_pb2.Operation(release=cache_pb2.Release(lease=lease, publish_to=publish_to))


def documented() -> dict[str, tuple[str, frozenset[str]]]:
    """Type and labels of each family of docs/metrics.md."""
    rows = list(ROW.finditer(DOCUMENT.read_text()))
    assert len(rows) == DOCUMENT.read_text().count("\n| `"), "a row that cannot be read"
    return {row["name"]: (row["type"], frozenset(filter(None, row["labels"].split(", ")))) for row in rows}


def scraped(daemon: DaemonProcess) -> Iterator[tuple[str, tuple[str, frozenset[str]]]]:
    for family in families(daemon):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels}
        yield name, (family.type, frozenset(labels - {"le"}))


def test_the_documentation_lists_what_a_scrape_has(start_daemon: StartDaemon, folder: Path) -> None:
    daemon = start_daemon(*flags(folder / "state", "--metrics", "127.0.0.1:0")).serving()
    assert dict(scraped(daemon)) == documented()


def test_hits_are_counted_by_length_and_by_the_work_that_they_spare(daemon: DaemonProcess) -> None:
    stream = Stream(daemon, daemon.open_session())
    first = stream.send(acquire(ramp(300))).results[0].acquire.lease_id
    stream.send(release(first, publish_to=300))
    second = stream.send(acquire(ramp(300)), acquire(ramp(10, start=9_000)))
    assert second.results[0].acquire.device_tokens == 256
    scrape = Scrape(daemon)
    assert scrape("radixd_requested_tokens_total") == 300 + 300 + 10
    assert scrape("radixd_hit_tokens_total", tier="device") == 256
    assert scrape("radixd_hit_length_tokens_count") == 3
    assert scrape("radixd_hit_length_tokens_sum") == 256
    assert scrape("radixd_hit_length_tokens_bucket", le="0.0") == 2, "misses"
    assert scrape("radixd_hit_length_tokens_bucket", le="256.0") == 3
    assert scrape("radixd_indexer_pairs_saved_total") == 256 * 256 // 2
    assert scrape("radixd_indexer_pairs_left_total") == 256 * 44
    assert scrape("radixd_inserted_pages_total") == 4


def test_leases_are_measured_while_they_are_held_and_when_they_end(daemon: DaemonProcess) -> None:
    stream = Stream(daemon, daemon.open_session())
    ids = [result.acquire.lease_id for result in stream.send(acquire(ramp(300)), acquire(ramp(128))).results]
    scrape = Scrape(daemon)
    assert scrape("radixd_leases", state="active") == scrape("radixd_locks_held") == 2
    assert scrape("radixd_active_lease_tokens") == 428
    assert scrape("radixd_tail_waste_bytes") == 20 * scrape("radixd_token_bytes"), "the second ends with its page"
    assert scrape("radixd_oldest_lock_seconds") > 0
    assert scrape("radixd_lease_length_tokens_count") == 0
    stream.send(*map(release, ids))
    scrape = Scrape(daemon)
    assert scrape("radixd_leases") == scrape("radixd_locks_held") == scrape("radixd_oldest_lock_seconds") == 0
    assert scrape("radixd_lease_length_tokens_sum") == 428
    assert scrape("radixd_lock_seconds_count") == 2


def test_verbs_are_counted_by_what_became_of_them(daemon: DaemonProcess) -> None:
    session = daemon.open_session()
    stream = Stream(daemon, session)
    stream.send(acquire(ramp(50 * 64)), acquire(ramp(60 * 64, start=9_000)), acquire(ramp(101 * 64)))
    stream.send(release(4_711), cache_pb2.Operation())
    call = cache_pb2.Call(session_id=session.session_id, secret=session.secret, epoch=session.epoch, seq=3)
    daemon.cache.Match(cache_pb2.MatchRequest(call=call, match=cache_pb2.Match(tokens=ramp(64))), timeout=PATIENCE_S)
    scrape = Scrape(daemon)

    def count(verb: str, status: str) -> float:
        return scrape("radixd_operations_total", verb=verb, status=status)

    assert count("acquire", "OK") == count("acquire", "NO_PAGES") == count("acquire", "NEVER_FITS") == 1
    assert count("release", "OK") == 0
    assert count("release", "NO_LEASE") == count("unknown", "BAD_FIELD") == count("match", "OK") == 1
    assert scrape("radixd_operation_seconds_count", verb="acquire") == 3
    assert scrape("radixd_operation_seconds_sum", verb="match") > 0
    assert scrape("radixd_batch_operations_sum") == 5
    assert scrape("radixd_batch_seconds_count") == 2, "a unary call is no Batch"
    assert scrape("radixd_allocation_failures_total", reason="never_fits") == 1
    assert scrape("radixd_allocation_failures_total", reason="held") == 1
    assert scrape("radixd_refused_pages_sum") == 60, "what never fits is no want of pages"


def test_calls_of_sessions_and_operators_are_counted_too(daemon: DaemonProcess) -> None:
    daemon.open_session()
    daemon.ledger()
    with pytest.raises(grpc.RpcError):
        daemon.admin.Reap(admin_pb2.ReapRequest(session_id=4_711), timeout=PATIENCE_S)
    scrape = Scrape(daemon)
    for method, status in (("OpenSession", "OK"), ("Occupancy", "OK"), ("Reap", "NO_SESSION")):
        assert scrape("radixd_calls_total", method=method, status=status) == 1
        assert scrape("radixd_call_seconds_count", method=method) == 1
    assert scrape("radixd_calls_total", method="Reap", status="OK") == 0


def test_what_clients_say_never_adds_a_series(daemon: DaemonProcess) -> None:
    stream = Stream(daemon, daemon.open_session())
    stream.send(*salted(range(1)))
    before = set(Scrape(daemon).samples)
    for first in range(0, SALTS, 1_000):
        assert all(result.WhichOneof("result") for result in stream.send(*salted(range(first, first + 1_000))).results)
    for i in range(NAMES):
        daemon.open_session(f"client {i}")
    scrape = Scrape(daemon)
    assert scrape("radixd_operations_total", verb="acquire", status="OK") == SALTS + 1
    assert scrape("radixd_sessions", state="live") == NAMES + 1
    assert set(scrape.samples) == before


def salted(numbers: range) -> Iterator[cache_pb2.Operation]:
    """Requests that come and go, each in a namespace of its own."""
    for index, number in enumerate(numbers):
        yield acquire(ramp(10), salt=f"salt {number}")
        yield cache_pb2.Operation(release=cache_pb2.Release(lease=cache_pb2.LeaseRef(opened_by=2 * index)))
