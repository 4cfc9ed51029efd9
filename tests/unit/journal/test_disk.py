"""Disks that are full, read-only or broken: journaling ends and says so, and nothing wrong can be adopted."""

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from radixd.server.journal.header import Verdict
from radixd.server.journal.journal import Journal, State
from tests.unit.journal.tier import Tier, ids, key_of


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """The kernel refuses to let any file of this process grow further."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def refuse(monkeypatch: pytest.MonkeyPatch, name: str, number: int, when: Callable[..., bool]) -> None:
    """os.NAME fails with `number` for arguments that satisfy `when`."""
    real = getattr(os, name)

    def refused(*args: object, **kwargs: object) -> object:
        if when(*args):
            raise OSError(number, os.strerror(number))
        return real(*args, **kwargs)

    monkeypatch.setattr(f"os.{name}", refused)


def is_write(path: object, flags: int, *_: object) -> bool:
    return bool(flags & (os.O_WRONLY | os.O_RDWR)) and "journal" in str(path)


@pytest.fixture
def kept(tier: Tier) -> Tier:
    tier.keep(b"", key_of(1, 2, 3), ids(1, 2, 3))
    assert tier.journal.flush()
    return tier


@pytest.mark.parametrize("room", [0, 5, 20])
def test_a_full_disk_ends_journaling_and_says_so(kept: Tier, room: int) -> None:
    """`room` bytes are written of the last record, which is torn."""
    with no_file_beyond(kept.journal.size + room):
        kept.lose(ids(2))
        kept.keep(b"", key_of(7), ids(4))
        may_overwrite = kept.journal.flush()
    assert may_overwrite
    assert kept.journal.state is State.OFF
    assert "the journal cannot be written: [Errno 27]" in kept.journal.reason
    recovered = kept.recover()
    assert recovered.verdict is Verdict.GIVEN_UP
    assert "the journal cannot be written" in recovered.reason
    assert recovered.pages == 0


def test_a_journal_that_is_off_takes_everything_in_silence(kept: Tier) -> None:
    with no_file_beyond(0):
        kept.lose(ids(1))
        kept.journal.flush()
    kept.keep(b"", key_of(7), ids(4))
    kept.lose(ids(4, 2))
    assert kept.journal.flush()
    assert kept.journal.begin_compaction() is None
    assert (kept.journal.size, kept.journal.live_pages) == (0, 0)
    kept.journal.close()
    assert kept.journal.state is State.OFF


def test_a_read_only_disk_freezes_the_pages_until_it_can_be_written(
    kept: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither DEAD nor the end of the journal can be written: what it says must stay true."""
    with monkeypatch.context() as broken:
        refuse(broken, "pwrite", errno.EROFS, lambda *_: True)
        refuse(broken, "open", errno.EROFS, is_write)
        refuse(broken, "unlink", errno.EROFS, lambda *_: True)
        kept.lose(ids(2))
        assert not kept.journal.flush()
        assert kept.journal.state is State.STUCK
        assert "Read-only file system" in kept.journal.reason
        assert not kept.journal.flush()
        assert kept.recover().pages == 3  # and it is true: nothing was overwritten
    assert kept.journal.flush()
    assert kept.journal.state is State.OFF
    assert kept.recover().pages == 0


def test_a_start_on_a_read_only_disk_says_so(kept: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    recovered = kept.recover()
    assert recovered.pages == 3
    refuse(monkeypatch, "open", errno.EROFS, is_write)
    refuse(monkeypatch, "unlink", errno.EROFS, lambda *_: True)
    journal = Journal.start(kept.directory, recovered)
    assert journal.state is State.STUCK
    assert not journal.flush()
    assert "Read-only file system" in journal.reason


def test_a_start_on_a_full_disk_goes_on_without_a_journal(kept: Tier) -> None:
    recovered = kept.recover()
    with no_file_beyond(20):
        journal = Journal.start(kept.directory, recovered)
    assert journal.state is State.OFF
    assert journal.flush()
    assert kept.recover().verdict is Verdict.GIVEN_UP
    assert not (kept.directory / "journal.new").exists()
    assert Tier(kept.directory).journal.state is State.WRITING  # no crash loop: the next start works


def test_a_missing_directory_is_no_crash(kept: Tier, tmp_path: Path) -> None:
    journal = Journal.start(tmp_path / "gone", kept.recover())
    assert journal.state is State.OFF
    assert "No such file" in journal.reason


def test_a_journal_that_cannot_be_read_starts_cold(kept: Tier, tmp_path: Path) -> None:
    (kept.directory / "journal").unlink()
    (kept.directory / "journal").mkdir()
    recovered = kept.recover()
    assert recovered.verdict is Verdict.UNREADABLE
    assert "Is a directory" in recovered.reason


@pytest.mark.parametrize("step", ["open", "pwrite", "fdatasync", "rename"])
def test_a_disk_that_fails_during_a_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    tier = Tier(tmp_path, compact_bytes=500)
    for number in range(4):
        tier.lose(ids(1, 2, 3))
        tier.keep(b"", key_of(number, 1, 2), ids(1, 2, 3))
        tier.journal.flush()
    with monkeypatch.context() as broken:
        if step == "open":
            refuse(broken, "open", errno.EIO, lambda path, *_: "journal.new" in str(path))
        elif step == "rename":
            refuse(broken, "rename", errno.EIO, lambda *_: True)
        else:
            refuse(broken, step, errno.EIO, lambda *_: True)
        assert tier.compact()
    assert tier.journal.state is State.OFF
    assert "the journal cannot be compacted: [Errno 5]" in tier.journal.reason
    assert tier.recover().verdict is Verdict.GIVEN_UP
    assert not (tmp_path / "journal.new").exists()


def test_a_snapshot_that_cannot_be_written_is_none(kept: Tier) -> None:
    with no_file_beyond(kept.journal.size):
        kept.journal.close()
    assert kept.journal.state is State.OFF
    assert "the snapshot cannot be written" in kept.journal.reason
    assert kept.recover().verdict is Verdict.GIVEN_UP


def test_the_files_are_for_their_owner_alone(kept: Tier) -> None:
    """They hold what users said."""
    assert (kept.directory / "journal").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("replaced", [False, True])
def test_a_journal_that_is_not_where_it_was_is_no_snapshot(kept: Tier, tmp_path: Path, replaced: bool) -> None:
    journal = kept.journal
    path = journal._path
    path.unlink()
    if replaced:
        path.write_bytes(b"another daemon's")
    journal.sync()
    assert journal.state is State.OFF
    assert "the journal cannot be written: [Errno 2]" in journal.reason
