"""The command line without a daemon."""

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from radixd.gpu_pool.paths import default_socket
from radixd.server.byte_text import byte_text
from radixd.server.cli import main
from radixd.server.cli.daemon_channel import address
from radixd.server.cli.parser import build_parser

COMMANDS = (
    *("serve", "replay", "status", "top", "sessions", "tree", "check"),
    *("flush", "evict", "snapshot", "reap", "plan", "doctor", "config"),
)


@pytest.fixture
def no_daemon(tmp_path: Path) -> str:
    return str(tmp_path / "none.sock")


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["--version"])
    assert raised.value.code == 0
    assert capsys.readouterr().out == f"radixd {importlib.metadata.version('radixd')}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main([command, "--help"])
    assert raised.value.code == 0
    assert f"usage: radixd {command}" in capsys.readouterr().out


def test_the_help_lists_all_commands() -> None:
    text = build_parser().format_help()
    assert all(f"    {command} " in text for command in COMMANDS)


def test_a_missing_module_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], no_daemon: str
) -> None:
    for name in [name for name in sys.modules if name.startswith("rich")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.delitem(sys.modules, "radixd.server.cli.output", raising=False)
    assert main(["status", "--target", no_daemon]) == 1
    error = capsys.readouterr().err
    assert error == (
        "radixd status: the module rich.console is missing: "
        "install radixd with its extra `server` (in a clone: pip install -e '.[server]')\n"
    )


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_reader_that_has_seen_enough_ends_a_command_quietly(flags: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = (sys.executable, "-c", "import sys; from radixd.server.cli import main; sys.exit(main())", "plan", *flags)
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert done.stderr == ""
    assert done.returncode


def test_no_daemon_is_one_line_with_the_way_out(capsys: pytest.CaptureFixture[str], no_daemon: str) -> None:
    assert main(["check", "--target", no_daemon]) == 1
    error = capsys.readouterr().err
    assert error == (
        f"radixd check: no daemon answers at {no_daemon}: "
        "start one with `radixd serve`, or name another with --target\n"
    )


def test_bytes_that_are_no_text_are_one_line(capsys: pytest.CaptureFixture[str], no_daemon: str) -> None:
    assert main(["health", "\udcff", "--target", no_daemon]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("radixd health: 'utf-8' codec can't encode")


def test_config_check_prints_the_meaning_or_the_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check"]) == 0
    assert "# 310 pages of 64, and page 0" in capsys.readouterr().out
    path = tmp_path / "c.toml"
    path.write_text("polls = 1\ntcp = 3")
    assert main(["config", "check", str(path)]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"{path}: tcp: expected a string of 1 to 256 characters, got 3",
        f"{path}: polls: unknown; did you mean 'pools'?",
    ]


def test_serve_refuses_what_config_check_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--policy", "best", "--tcp", "1.2.3.4:5"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("radixd serve: ") for line in lines)


def test_a_file_that_is_not_there_is_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", f"{tmp_path}/none.toml"]) == 2
    assert capsys.readouterr().err == f"{tmp_path}/none.toml: No such file or directory\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("evict", "-5"),
        ("evict", "0"),
        ("tree", "--max-nodes", "-1"),
        ("tree", "--max-nodes", "4294967296"),
        ("reap", "0", "name"),
        ("reap", "x", "name"),
        ("replay", "--requests", "x"),
        ("replay", "--seed", "-1"),
    ],
)
def test_a_number_that_cannot_be_is_told_in_plain_words(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "expected a whole number, got 'x'" in line or " is outside [" in line


def test_replay_may_name_the_daemon_at_its_usual_place() -> None:
    parse = build_parser().parse_args
    assert parse(["replay", "--target", "--requests", "5"]).target == str(default_socket())
    assert parse(["replay"]).target is None


def test_json_names_what_is_enumerated(capsys: pytest.CaptureFixture[str]) -> None:
    from radixd.server.cli.output import print_json
    from radixd.v1 import admin_pb2, types_pb2

    print_json(admin_pb2.PoolOccupancy(speculative=types_pb2.SPECULATIVE_MODE_BIGRAM))
    assert json.loads(capsys.readouterr().out)["speculative"] == "SPECULATIVE_MODE_BIGRAM"


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 bytes"), (640, "640 bytes"), (5376, "5.25 KiB"), (2**20, "1.00 MiB"), (2**30 - 10_000, "1.00 GiB"),
        (2**50, "1024.00 TiB"),
    ],
)  # fmt: skip
def test_bytes_are_shown_in_a_unit_that_fits(nbytes: int, text: str) -> None:
    assert byte_text(nbytes) == text


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/run/r.sock", "unix:/run/r.sock"),
        ("unix:/run/r.sock", "unix:/run/r.sock"),
        ("127.0.0.1:50051", "127.0.0.1:50051"),
        ("r.sock", f"unix:{Path.cwd() / 'r.sock'}"),
    ],
)
def test_targets(target: str, expected: str) -> None:
    assert address(target) == expected
