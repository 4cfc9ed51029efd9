"""`radixd doctor` on saved scrapes: what it prints, and that nonsense gets one line and status 2."""

import json
from pathlib import Path

import pytest

from radixd.server.cli import main
from radixd.server.cli.doctor_report import WIDTH
from radixd.server.cli.doctor_saved import is_url
from tests.unit.doctor.saved import HEALTHY, text

Capture = pytest.CaptureFixture[str]
BROKEN = {"radixd_pool_broken": 1}


def refused(capsys: Capture, *flags: str) -> str:
    assert main(["doctor", *flags]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("radixd doctor: ")
    return line.removeprefix("radixd doctor: ")


def test_a_healthy_scrape(capsys: Capture) -> None:
    assert main(["doctor", "--metrics", str(HEALTHY)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{HEALTHY}, counted since the daemon's start\n\npool default: nothing found\n")
    assert "  no: is it stopped? · does its ledger not add up? · " in out
    denied = out.partition("  no: ")[2].partition("\n  not told:")[0].splitlines()
    assert len(denied) > 1
    assert all(len(line) <= WIDTH for line in denied)


def test_a_finding_for_people_and_for_programs(capsys: Capture, tmp_path: Path) -> None:
    saved = tmp_path / "a.prom"
    saved.write_text(text(BROKEN))
    assert main(["doctor", "--metrics", str(saved)]) == 1
    out = capsys.readouterr().out
    assert "pool default: 1 finding\n\n  PoolBroken: the pool is stopped" in out
    assert "\n  next: the first CRITICAL line" in out
    assert main(["doctor", "--json", "--metrics", str(saved)]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["daemon"] is None
    (pool,) = report["pools"]
    (finding,) = pool["findings"]
    assert finding["evidence"][0] == {"what": "radixd_pool_broken", "value": 1}
    assert finding["next_step"]


def test_a_daemon_whose_loop_stands_still_has_no_pools_to_tell_of(capsys: Capture, tmp_path: Path) -> None:
    lines = text({"radixd_loop_answers": 0}).splitlines(keepends=True)
    saved = tmp_path / "a.prom"
    saved.write_text("".join(line for line in lines if 'pool="' not in line))
    assert main(["doctor", "--metrics", str(saved)]) == 1
    assert "LoopStalls: the daemon's event loop stands still" in capsys.readouterr().out
    assert main(["doctor", "--json", "--metrics", str(saved)]) == 1
    assert json.loads(capsys.readouterr().out)["daemon"]["name"] == "LoopStalls"


def test_one_pool_of_several(capsys: Capture, tmp_path: Path) -> None:
    saved = tmp_path / "a.prom"
    other = [line.replace('"default"', '"other"') for line in text(BROKEN).splitlines() if 'pool="' in line]
    saved.write_text(text() + "\n".join(other) + "\n")
    assert main(["doctor", "--metrics", str(saved)]) == 1
    assert main(["doctor", "--metrics", str(saved), "--pool", "other"]) == 1
    assert main(["doctor", "--metrics", str(saved), "--pool", "default"]) == 0
    capsys.readouterr()
    assert (
        refused(capsys, "--metrics", str(saved), "--pool", "x") == "--pool: no pool 'x' here; there are default, other"
    )


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "the metrics of one daemon are wanted, and here are none"),
        (b"up 1\n", "the metrics of one daemon are wanted, and here are none"),
        (b"\xff\xfe\x00garbage", "this is no text"),
        (b"<html>no</html>\n", "this is no Prometheus text"),
        (b"{[}\n", "this is no Prometheus text"),
        (b'radixd_pages{pool="a"\n', "this is no Prometheus text"),
        (b"radixd_epoch_timestamp_seconds x\n", "this is no Prometheus text"),
        (b"radixd_epoch_timestamp_seconds 1\nradixd_loop_answers NaN\n", "radixd_loop_answers is no finite number"),
        (
            b'radixd_epoch_timestamp_seconds{instance="a"} 1\nradixd_epoch_timestamp_seconds{instance="b"} 2\n',
            "the metrics of one daemon are wanted, and here are several",
        ),
    ],
)
def test_what_is_no_scrape(capsys: Capture, tmp_path: Path, content: bytes, told: str) -> None:
    saved = tmp_path / "a.prom"
    saved.write_bytes(content)
    assert refused(capsys, "--metrics", str(saved)).startswith(f"{saved}: {told}")


def test_a_part_of_a_scrape(capsys: Capture, tmp_path: Path) -> None:
    saved = tmp_path / "a.prom"
    saved.write_text("radixd_epoch_timestamp_seconds 1\nradixd_loop_answers 1\n")
    assert refused(capsys, "--metrics", str(saved)) == "there is no pool in the scrape: save all of /metrics"


@pytest.mark.parametrize("value", [0.0, -7.0, 1e300])
def test_numbers_that_no_daemon_has_written_answer_nothing(capsys: Capture, tmp_path: Path, value: float) -> None:
    saved = tmp_path / "a.prom"
    lines = [line if "epoch" in line or line[0] == "#" else f"{line.rpartition(' ')[0]} {value}" for line in
             text().splitlines()]  # fmt: skip
    saved.write_text("\n".join(lines) + "\n")
    main(["doctor", "--expect", "1M", "--metrics", str(saved)])
    assert "these numbers make no sense: " in capsys.readouterr().out


def test_files_that_cannot_be_read(capsys: Capture, tmp_path: Path) -> None:
    assert refused(capsys, "--metrics", str(tmp_path / "no")) == f"{tmp_path / 'no'}: No such file or directory"
    assert refused(capsys, "--metrics", str(tmp_path)) == f"{tmp_path}: Is a directory"
    healthy = str(HEALTHY)
    assert "3 files; give one scrape, or two" in refused(capsys, "--metrics", healthy, healthy, healthy)


def test_two_scrapes_of_two_daemons(capsys: Capture, tmp_path: Path) -> None:
    saved = tmp_path / "a.prom"
    saved.write_text(text({"radixd_epoch_timestamp_seconds": 1}))
    assert "the daemon was started anew between the two scrapes" in refused(
        capsys, "--metrics", str(saved), str(HEALTHY)
    )


@pytest.mark.parametrize(
    ("expect", "told"),
    [
        ("glm", "--expect: expected a number of tokens such as 131072, 128K or 1M, got 'glm'; or a preset (glm-5.3, "),
        ("0", "--expect: 0 is outside"),
        ("-5", "--expect: expected a number of tokens"),
        ("color=red", "--expect: 'color' is no flag of a plan; known are preset, "),
        ("preset=glm-9", "--expect preset: 'glm-9' is none of "),
        ("bytes=-5GB", "--expect bytes: expected a number of bytes"),
        ("fraction=1.2,gpu-memory=141GB", "--expect fraction: fraction 1.2 is outside (0, 1]"),
        ("from-config=/no/such.json", "geometry '/no/such.json' is neither a preset"),
    ],
)
def test_expectations_that_make_no_sense(capsys: Capture, expect: str, told: str) -> None:
    assert refused(capsys, "--metrics", str(HEALTHY), f"--expect={expect}").startswith(told)


@pytest.mark.parametrize("seconds", ["-1", "x", "nan", "1e9"])
def test_seconds_that_cannot_be_watched(capsys: Capture, seconds: str) -> None:
    with pytest.raises(SystemExit) as left:
        main(["doctor", f"--seconds={seconds}"])
    assert left.value.code == 2
    assert "--seconds" in capsys.readouterr().err


def test_addresses_and_files_are_told_apart() -> None:
    assert is_url("127.0.0.1:9464")
    assert is_url("[::1]:9464")
    assert is_url("http://127.0.0.1:1/metrics")
    assert not is_url("saved.prom")
    assert not is_url("/var/lib/saved:12")
