"""`radixd replay` as its users run it: what it proves, and that it cannot be fooled."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest

from radixd.client import Client
from radixd.server.cli import main
from radixd.server.cli.parser import build_parser
from radixd.server.replay.options import Options
from radixd.v1 import admin_pb2
from tests.e2e.daemon_process import COMMAND, PATIENCE_S, DaemonProcess, eventually, on_device, radixd

pytestmark = pytest.mark.usefixtures("memory")

NO_FAULTS = ("--kill-every", "0", "--aborts", "0", "--rollbacks", "0", "--reconnects", "0", "--preempt", "0")
POOL = ("--geometry", "tiny", "--device", "cpu_async", "--pool-tokens", "12800")


def replay(folder: Path, *flags: str) -> tuple[int, dict[str, object]]:
    report = folder / "report.json"
    done = radixd("replay", "--report", str(report), *flags)
    assert report.exists(), done.stderr
    return done.returncode, json.loads(report.read_text())


def test_kills_aborts_rejected_drafts_and_reconnects_leave_every_byte_right(folder: Path) -> None:
    status, report = replay(
        folder, *POOL, "--requests", "80", "--schedulers", "2", "--kill-every", "20", "--aborts", "5",
        "--rollbacks", "5", "--reconnects", "2", "--layout", "layer_first",
    )  # fmt: skip
    assert status == 0, report
    assert report["mismatches"] == report["unfinished"] == report["never_fit"] == 0
    assert report["finished"] == 75
    assert report["aborts"] == 5
    assert report["kills"] >= 2, "three are due; all may have ended before the last one"
    assert report["ledger_ok"]
    assert report["evicted_pages"] > 200, "the pool was not turned over"
    assert report["hit_tokens"] > 0
    assert report["bytes_verified"] > 84 * report["hit_tokens"], "less was verified than was hit"
    assert report["rollbacks"] >= 5
    assert report["reconnects"] >= 1


def test_a_scheduler_that_others_kill_is_replaced_too(folder: Path, start_daemon: Callable[..., DaemonProcess]) -> None:
    daemon = start_daemon("--device", "cpu", "--tokens", "12800").serving()
    report = folder / "report.json"
    flags = ("--target", str(daemon.socket), "--requests", "300", "--schedulers", "2", "--report", str(report))
    run = subprocess.Popen((*COMMAND, "replay", *on_device(flags), *NO_FAULTS), stdout=subprocess.DEVNULL)
    try:
        working: list[int] = []

        def found() -> bool:
            sessions = daemon.admin.ListSessions(admin_pb2.ListSessionsRequest(), timeout=PATIENCE_S).sessions
            working.extend(pid for session in sessions if session.launched > 2 for pid in session.pids)
            return bool(working)

        eventually(found)
        os.kill(working[0], signal.SIGKILL)
        assert run.wait(PATIENCE_S) == 0
    finally:
        run.kill()
        run.wait()
    figures = json.loads(report.read_text())
    assert (figures["finished"], figures["kills"], figures["outside_kills"]) == (300, 0, 1)


@pytest.mark.parametrize(
    ("flags", "kill_every"),
    [((), 150), (("--requests", "100"), 50), (("--requests", "10"), 0), (("--requests", "10", "--kill-every", "4"), 4)],
)
def test_short_runs_have_kills_too_and_very_short_ones_none(flags: tuple[str, ...], kill_every: int) -> None:
    assert Options.read(build_parser().parse_args(["replay", *flags])).kill_every == kill_every


@pytest.mark.host_memory
def test_sigterm_ends_the_daemon_and_the_schedulers_too(folder: Path) -> None:
    command = (*COMMAND, "replay", *POOL, "--requests", "4000", "--schedulers", "2")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | {"TMPDIR": str(folder)}) as running:
        eventually(lambda: len(_children(running.pid)) >= 3)  # a daemon and two schedulers
        children = _children(running.pid)
        running.terminate()
        assert running.wait(PATIENCE_S) == 128 + signal.SIGTERM
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))
    assert not list(folder.glob("radixd-replay-*"))


@pytest.mark.host_memory
def test_a_daemon_that_replay_could_not_stop_ends_by_itself(folder: Path) -> None:
    command = (*COMMAND, "replay", *POOL, "--requests", "4000", "--schedulers", "1")

    def sockets() -> list[Path]:
        return list(folder.glob("radixd-replay-*/radixd.sock"))

    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | {"TMPDIR": str(folder)}) as running:
        eventually(lambda: bool(sockets()))
        running.kill()
    eventually(lambda: not sockets())  # an orderly end removes it


def _children(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children()]


def test_a_scribbled_page_is_found(folder: Path, start_daemon: Callable[..., DaemonProcess]) -> None:
    """The second run meets the first one's pages, one byte of each changed in between."""
    daemon = start_daemon("--device", "cpu", "--geometry", "tiny", "--tokens", "12800").serving()
    flags = ("--target", str(daemon.socket), "--requests", "6", "--schedulers", "1", "--no-decode")
    no_faults = ("--kill-every", "0", "--reconnects", "0")
    assert replay(folder, *flags, *no_faults)[0] == 0
    with Client(daemon.socket) as client, client.open_session(model=b"vandal") as session:
        attachment = session.attach()
        page = attachment.layout.page_stride
        attachment.views[0].buffer[page + 100 :: page] += 1
    status, report = replay(folder, *flags, *no_faults)
    assert status == 1
    assert report["mismatches"] > 0
    assert report["hit_tokens"] > 0
    assert report["unfinished"] == 0


def test_a_traces_hits_are_exact(folder: Path) -> None:
    """A miss, its own repetition (all but the last page), one that shares a block of 512, and one too long."""
    trace = folder / "trace.jsonl"
    prompts = {1024: [0, 1], 1023: [0, 1], 900: [0, 2], 20_000: list(range(40))}
    trace.write_text(
        "\n".join(
            json.dumps({"timestamp": 0, "input_length": length, "output_length": 1, "hash_ids": ids})
            for length, ids in prompts.items()
        )
    )
    status, report = replay(folder, "--trace", str(trace), "--pool-tokens", "12800")
    assert status == 0, report
    assert report["requests"] == 4
    assert report["never_fit"] == 1
    assert report["prompt_tokens"] == sum(prompts)
    assert report["hit_tokens"] == (1024 - 64) + 512
    assert report["bytes_verified"] == 0, "meta has no memory"


def test_a_pool_too_small_for_all_preempts_and_finishes(folder: Path) -> None:
    """Eight requests grow to 8 pages each on 20 pages, and none of them has reserved its growth."""
    trace = folder / "trace.jsonl"
    lines = [{"timestamp": 0, "input_length": 200, "output_length": 300, "hash_ids": [i]} for i in range(8)]
    trace.write_text("\n".join(map(json.dumps, lines)))
    flags = ("--geometry", "tiny", "--device", "cpu", "--pool-tokens", "1280", "--schedulers", "2", "--decode")
    status, report = replay(folder, "--trace", str(trace), *flags)
    assert status == 0, report
    assert report["finished"] == 8
    assert report["preemptions"] > 0
    assert report["output_tokens"] == 8 * 300


def test_mistakes_are_told_in_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ("--requests", "5")
    for flags, status, told in (
        (("--trace", f"{folder}/nowhere"), 2, "nowhere"),
        (("--requests", "all"), 2, "--requests all"),
        (("--requests", "5", "--rollbacks", "6"), 2, "--rollbacks 6"),
        (("--target", f"{folder}/nobody.sock", *few), 1, "nobody"),
        (("--target", "x.sock", "--geometry", "tiny"), 2, "--geometry"),
        (("--policy", "best", *few), 1, "policy"),
        (("--report", f"{folder}/nowhere/report.json", *few), 2, "nowhere/report.json"),
    ):
        assert main(("replay", *flags)) == status
        error = capsys.readouterr().err
        assert told in error
        assert error.count("\n") == 1


def test_both_definitions_of_a_traces_tokens_agree(folder: Path) -> None:
    from bench.workload import trace_prompts
    from radixd.server.replay.mooncake import expand

    line = {"input_length": 1300, "output_length": 1, "hash_ids": [5, 2**23 + 1, 9]}
    trace = folder / "trace.jsonl"
    trace.write_text(json.dumps(line))
    (prompt,) = trace_prompts(trace)
    assert np.array_equal(prompt, expand((5, 2**23 + 1, 9), 1300))
