"""`radixd replay` with imports: a pool copies what another pool of the daemon holds, and every byte is right."""

from pathlib import Path

import pytest

from radixd.server.replay.own_daemon import PoolChoice, own_daemon
from tests.e2e.test_replay import POOL, replay

pytestmark = pytest.mark.usefixtures("memory")

NO_FAULTS = ("--kill-every", "0", "--reconnects", "0", "--aborts", "0", "--rollbacks", "0", "--preempt", "0")


def test_a_cold_pool_imports_what_its_peer_has(folder: Path, memory: str) -> None:
    """One pool hears the conversations first; the other two hear them again, the last one without importing."""
    choice = PoolChoice(
        "tiny",
        "cuda" if memory == "gpu" else "cpu_async",
        64_000,
        "priority",
        "page_first",
        0,
        "write_back",
        keep_state=False,
    )
    with own_daemon(choice, ("first", "importing", "isolated")) as daemon:
        flags = ("--target", str(daemon.socket), "--requests", "30", "--schedulers", "1", "--no-decode", *NO_FAULTS)
        (_, first), (status, importing), (_, isolated) = (
            replay(folder, *flags, "--pool", "first"),
            replay(folder, *flags, "--pool", "importing", "--import-from-peers"),
            replay(folder, *flags, "--pool", "isolated"),
        )
    assert status == 0, importing
    assert importing["mismatches"] == 0
    assert first["hit_tokens"] == isolated["hit_tokens"] > 0
    assert first["peer_hit_tokens"] == isolated["peer_hit_tokens"] == 0
    # All but each prompt's last page, or token: what is left are prompts without four pages more than the pool had.
    assert importing["hit_tokens"] > 0.8 * importing["prompt_tokens"] > first["hit_tokens"]
    assert importing["peer_hit_tokens"] == 64 * importing["imported_pages"] > 0
    assert importing["bytes_verified"] >= 84 * importing["hit_tokens"]


def test_ranks_that_import_hit_more_than_isolated_ones(folder: Path) -> None:
    """Half of a conversation's turns meet the other rank; nothing is evicted."""
    run = (
        "--geometry", "tiny", "--device", "cpu_async", "--pool-tokens", "64000", "--pools", "2", "--host-pages", "0",
        "--requests", "60", "--schedulers", "2", "--no-decode", *NO_FAULTS,
    )  # fmt: skip
    (_, isolated), (status, importing) = replay(folder, *run), replay(folder, *run, "--import-from-peers")
    assert status == 0, importing
    assert importing["mismatches"] == 0
    assert importing["hit_rate"] > isolated["hit_rate"]
    assert importing["peer_hit_tokens"] > 0 == isolated["peer_hit_tokens"]
    assert importing["imported_pages"] == importing["lent_pages"]


def test_imports_under_every_fault_leave_every_byte_and_ledger_right(folder: Path) -> None:
    status, report = replay(
        folder, *POOL, "--pools", "2", "--import-from-peers", "--requests", "120", "--host-pages", "400",
        "--kill-every", "50", "--aborts", "4", "--rollbacks", "4", "--preempt", "6", "--reconnects", "4",
        "--restart-every", "70",
    )  # fmt: skip
    assert status == 0, report
    assert report["mismatches"] == report["unfinished"] == report["never_fit"] == 0
    assert report["ledger_ok"]
    assert report["imported_pages"] > 0
    assert report["evicted_pages"] > 200, "the pools were not turned over"
