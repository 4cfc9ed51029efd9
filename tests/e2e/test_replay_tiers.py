"""`radixd replay` on a pool with a host tier: the same proof across demotion, promotion, preemption and restarts."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from radixd.server.cli import main
from tests.e2e import daemon_process, failing_copies
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.test_replay import POOL, replay

pytestmark = pytest.mark.usefixtures("memory")

NO_FAULTS = ("--kill-every", "0", "--reconnects", "0", "--aborts", "0", "--rollbacks", "0")


def check_right(status: int, report: dict[str, object]) -> None:
    """Nothing is wrong."""
    assert status == 0, report
    assert report["mismatches"] == report["unfinished"] == report["never_fit"] == 0
    assert report["ledger_ok"]
    assert report["host_hit_tokens"] + report["device_hit_tokens"] == report["hit_tokens"]
    assert report["bytes_verified"] > 84 * report["hit_tokens"], "less was verified than was hit"


def test_kills_aborts_drafts_and_preemptions_on_two_tiers_leave_every_byte_right(folder: Path) -> None:
    status, report = replay(
        folder, *POOL, "--host-pages", "400", "--requests", "100", "--schedulers", "2", "--kill-every", "40",
        "--aborts", "5", "--rollbacks", "5", "--preempt", "10", "--reconnects", "2", "--layout", "layer_first",
    )  # fmt: skip
    check_right(status, report)
    assert report["host_hit_tokens"] > 0
    assert report["offloads"] >= 10
    assert report["restores"] > 0
    assert report["demoted_pages"] > 0
    assert report["promoted_pages"] > 0
    assert report["offloaded_pages"] > 0
    assert report["restored_pages"] > 0
    assert report["kills"] >= 1


def test_the_host_part_survives_restarts_in_order_and_by_kill(folder: Path) -> None:
    status, report = replay(
        folder, *POOL, "--host-pages", "400", "--requests", "80", "--schedulers", "2", "--kill-every", "0",
        "--preempt", "5", "--restart-every", "27", "--write-policy", "write_through",
    )  # fmt: skip
    check_right(status, report)
    assert report["restarts"] == 2
    assert report["host_hit_tokens"] > 1_000, "what the host held was lost"


@pytest.fixture
def failing_daemon(
    start_daemon: Callable[..., DaemonProcess], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., DaemonProcess]:
    """Starts a daemon, with the flags given, between whose tiers every third copy fails."""

    def start(*flags: str) -> DaemonProcess:
        with monkeypatch.context() as patch:
            patch.setattr(daemon_process, "COMMAND", (sys.executable, failing_copies.__file__))
            return start_daemon("--device", "cpu", *flags).serving()

    return start


def prompts_in_turns(folder: Path, rounds: int) -> tuple[str, str]:
    """Flags for a trace of eight prompts, of four pages each, that come again and again in the same order."""
    trace = folder / "trace.jsonl"
    lines = [{"timestamp": 0, "input_length": 257, "output_length": 1, "hash_ids": [i]} for i in (*range(8),) * rounds]
    trace.write_text("\n".join(map(json.dumps, lines)))
    return "--trace", str(trace)


def test_prompts_one_by_one_wait_for_what_the_host_sends(folder: Path) -> None:
    """The device holds five of the eight."""
    flags = ("--geometry", "tiny", "--device", "cpu_async", "--pool-tokens", "1600", "--host-pages", "100")
    status, report = replay(folder, *prompts_in_turns(folder, 2), *flags, "--write-policy", "write_through")
    check_right(status, report)
    assert report["host_hit_tokens"] > 0
    assert report["finished"] == 16


def test_promotions_that_fail_shorten_hits_and_spoil_nothing(
    folder: Path, failing_daemon: Callable[..., DaemonProcess]
) -> None:
    daemon = failing_daemon("--tokens", "1600", "--host-tokens", "6400", "--write-policy", "write_through")
    status, report = replay(folder, "--target", str(daemon.socket), *prompts_in_turns(folder, 12))
    check_right(status, report)
    assert report["failed_copy_pages"] > 0
    assert 0 < report["host_hit_tokens"] < 11 * 8 * 256, "all hits are whole ones"


def test_offloads_and_restores_that_fail_spoil_nothing(
    folder: Path, failing_daemon: Callable[..., DaemonProcess]
) -> None:
    daemon = failing_daemon("--tokens", "12800", "--host-tokens", "25600")
    flags = ("--requests", "80", "--schedulers", "2", "--preempt", "20")
    status, report = replay(folder, "--target", str(daemon.socket), *flags, *NO_FAULTS)
    check_right(status, report)
    assert report["failed_copy_pages"] > 0
    assert report["offloads"] == report["restores"] > 0


def test_without_a_host_tier_the_preempted_compute_again(folder: Path) -> None:
    status, report = replay(
        folder, *POOL, "--host-pages", "0", "--requests", "20", "--schedulers", "1", "--preempt", "3", *NO_FAULTS
    )  # fmt: skip
    assert status == 0, report
    assert report["preemptions"] == 3
    assert report["offloads"] == report["restores"] == report["host_hit_tokens"] == 0


def test_a_daemon_that_is_there_already_is_not_restarted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("replay", "--target", "x.sock", "--restart-every", "5")) == 2
    assert "--restart-every" in capsys.readouterr().err
