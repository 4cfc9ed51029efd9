"""`radixd replay` on several pools of one daemon: data-parallel ranks."""

import json
from contextlib import closing
from pathlib import Path

from radixd.server.replay.own_daemon import PoolChoice, own_daemon
from radixd.server.replay.pool_admin import PoolAdmin
from tests.e2e.test_replay import POOL, replay

NO_FAULTS = ("--kill-every", "0", "--reconnects", "0", "--aborts", "0", "--rollbacks", "0", "--preempt", "0")


def check_sums(report: dict[str, object]) -> list[dict[str, object]]:
    """The report's own figures are those of its pools together; returns the pools'."""
    pools: list[dict[str, object]] = report["pools"]
    for figure in (
        "prompt_tokens",
        "hit_tokens",
        "host_hit_tokens",
        "evicted_pages",
        "demoted_pages",
        "promoted_pages",
    ):
        assert report[figure] == sum(pool[figure] for pool in pools), figure
    assert report["pool_pages"] == sum(pool["ledger"]["device"]["total"] for pool in pools)
    return pools


def test_every_fault_on_two_pools_leaves_every_byte_and_ledger_right(folder: Path) -> None:
    status, report = replay(
        folder, *POOL, "--pools", "2", "--host-pages", "400", "--requests", "120", "--kill-every", "40",
        "--aborts", "4", "--rollbacks", "4", "--preempt", "6", "--reconnects", "4", "--restart-every", "40",
    )  # fmt: skip
    assert status == 0, report
    assert report["mismatches"] == report["unfinished"] == report["never_fit"] == 0
    assert (report["finished"], report["aborts"], report["restarts"]) == (116, 4, 2)
    assert report["kills"] >= 1
    assert report["restores"] > 0
    pools = check_sums(report)
    assert [pool["pool"] for pool in pools] == ["dp0", "dp1"]
    for pool in pools:
        assert pool["requests"] == 60
        assert pool["ledger_ok"]
        assert pool["hit_tokens"] > 0
        assert pool["ledger"]["device"]["total"] == 200


def test_the_pools_of_a_running_daemon_are_named(folder: Path) -> None:
    """The third one is left alone."""
    choice = PoolChoice("tiny", "cpu", 12_800, "priority", "page_first", 0, "write_back", keep_state=False)
    with own_daemon(choice, ("a", "b", "c")) as daemon:
        flags = ("--target", str(daemon.socket), "--pool", "c,a", "--requests", "20", "--schedulers", "2", *NO_FAULTS)
        status, report = replay(folder, *flags)
        with closing(PoolAdmin(str(daemon.socket), "b")) as alone:
            assert alone.occupancy().requested_tokens == 0
    assert status == 0, report
    assert [(pool["pool"], pool["requests"]) for pool in check_sums(report)] == [("c", 10), ("a", 10)]


def test_isolated_pools_share_no_prefix(folder: Path) -> None:
    """The same prompt four times, by turns in two pools: each pool computes it once, and hits it once."""
    trace = folder / "trace.jsonl"
    line = {"timestamp": 0, "input_length": 257, "output_length": 1, "hash_ids": [7]}
    trace.write_text("\n".join([json.dumps(line)] * 4))
    status, report = replay(folder, "--trace", str(trace), *POOL, "--pools", "2")
    assert status == 0, report
    assert [pool["hit_tokens"] for pool in check_sums(report)] == [256, 256]
