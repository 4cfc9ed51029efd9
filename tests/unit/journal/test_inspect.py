"""`radixd inspect` on what daemons leave behind."""

import json
from pathlib import Path

import pytest

from radixd.server.cache.namespace import Namespace
from radixd.server.cli import main
from tests.unit.journal.tier import NAMESPACE, PAGE_BYTES, Tier, ids, key_of


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory of two pools: `a` ended in order, `b` did not."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        tier = Tier(tmp_path / name, epoch=77)
        tier.keep(b"", key_of(1, 2), ids(1, 2))
        tier.keep(b"", key_of(1), ids(3), Namespace(b"model", b"adapter", b"the salt of a tenant"))
        tier.journal.flush()
        if name == "a":
            tier.journal.close()
    return tmp_path


def test_a_snapshot_is_shown(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(state)]) == 0
    shown = capsys.readouterr().out
    assert f"{state}/a/journal: format 1" in shown
    assert f"3 of 16 host pages are live: {3 * PAGE_BYTES} bytes" in shown
    assert shown.count("  ended in order") == shown.count("  not ended in order") == 1
    assert NAMESPACE.digest() in shown
    assert f"{b'model'.hex()} (model)" in shown
    assert "salt of a tenant" not in shown


def test_json_is_for_programs(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(state / "a"), "--json"]) == 0
    shown = capsys.readouterr().out
    (journal,) = json.loads(shown)
    assert (journal["live_pages"], journal["host_pages"], journal["clean"]) == (3, 16, True)
    assert (journal["epoch"], journal["page_size"], journal["bad_record"]) == (77, 2, "")
    assert {space["digest"]: space["pages"] for space in journal["namespaces"]}[NAMESPACE.digest()] == 2
    assert "salt" not in shown


def test_a_torn_one_is_usable_and_says_where_it_ends(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (state / "b" / "journal").open("ab") as file:
        file.write(b"\1" * 9)
    assert main(["inspect", str(state / "b")]) == 0
    assert "a record is cut off after 9 bytes; the last 9 bytes do not count" in capsys.readouterr().out


def test_an_unusable_one_fails_with_its_reason(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (state / "b" / "journal").write_bytes(b"something else entirely")
    assert main(["inspect", str(state)]) == 1
    shown = capsys.readouterr()
    assert "a/journal" in shown.out
    assert shown.err == f"radixd inspect: {state}/b: the file does not begin like a journal of radixd\n"


def test_nothing_there_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        assert main(["inspect", str(path)]) == 1
        assert "no journal here" in capsys.readouterr().err
