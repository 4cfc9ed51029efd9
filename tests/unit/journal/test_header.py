"""Journals of other pools, other data and other formats: a cold start that says why."""

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from radixd.server.journal.header import VERSION, Header, Verdict
from radixd.server.journal.recovery import Recovered, recover
from radixd.server.journal.stamp import read_stamp, write_stamp
from tests.unit.journal.tier import Tier, ids, key_of, random_nonce


@pytest.fixture
def kept(tier: Tier) -> Tier:
    tier.keep(b"", key_of(1, 2), ids(1, 2))
    tier.journal.close()
    return tier


def start(tier: Tier, wanted: Header) -> Recovered:
    recovered = recover(tier.directory, wanted, tier.checksums)
    assert recovered.pages == 0
    assert list(recovered.paths()) == []
    assert recovered.header.nonce not in (wanted.nonce, tier.header.nonce)
    return recovered


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"fingerprint": b"another model  1"}, "geometry fingerprint: the journal has 74696e79"),
        ({"page_bytes": 128}, "bytes of a page: the journal has 96, the pool 128"),
        ({"page_size": 4}, "page_size: the journal has 2, the pool 4"),
        ({"host_pages": 15}, "the host tier has shrunk from 16 pages to 15"),
        ({"element_bytes": 8}, "bytes of a key element: the journal has 4, the pool 8"),
    ],
)
def test_another_geometry_starts_cold(kept: Tier, change: dict[str, int], says: str) -> None:
    recovered = start(kept, replace(kept.header, **change))
    assert recovered.verdict is Verdict.GEOMETRY
    assert says in recovered.reason


def test_a_host_tier_may_grow(kept: Tier) -> None:
    again = Tier(kept.directory, host_pages=20)
    assert again.recovered.pages == 2
    again.keep(b"", key_of(5), ids(20))
    again.journal.flush()
    assert again.recover().pages == 3


def test_another_epoch_is_no_obstacle(kept: Tier) -> None:
    assert recover(kept.directory, replace(kept.header, epoch=99), kept.checksums).pages == 2


@pytest.mark.parametrize("nonce", [b"\0" * 16, random_nonce()], ids=["unstamped", "stamped otherwise"])
def test_other_data_starts_cold(kept: Tier, nonce: bytes) -> None:
    recovered = start(kept, replace(kept.header, nonce=nonce))
    assert recovered.verdict is Verdict.OTHER_DATA
    assert "not the one it was written for" in recovered.reason


def test_another_format_starts_cold(kept: Tier) -> None:
    with (kept.directory / "journal").open("r+b") as file:
        file.seek(8)
        file.write(struct.pack("<I", VERSION + 1))
    recovered = start(kept, kept.header)
    assert recovered.verdict is Verdict.FORMAT
    assert f"format is {VERSION + 1}, and this radixd reads {VERSION} alone" in recovered.reason


def test_a_header_is_read_back_as_it_was(kept: Tier) -> None:
    assert Header.decode(kept.header.encode()) == kept.header


def test_a_stamp_is_read_back_or_is_none(tmp_path: Path) -> None:
    page, nonce = bytearray(range(200)), random_nonce()
    assert read_stamp(memoryview(page)) == b"\0" * 16
    write_stamp(memoryview(page), nonce)
    assert read_stamp(memoryview(page)) == nonce
    assert page[64:] == bytes(range(64, 200))
    page[12] ^= 1
    assert read_stamp(memoryview(page)) == b"\0" * 16
    assert read_stamp(memoryview(bytearray(200))) == b"\0" * 16


def test_records_of_another_journal_do_not_pass(kept: Tier, tmp_path: Path) -> None:
    """A disk that brings back old blocks brings no record back: checksums are seeded by the nonce."""
    other = tmp_path / "other"
    other.mkdir()
    records = (kept.directory / "journal").read_bytes()[len(kept.header.encode()) :]
    tier = Tier(other)
    with (other / "journal").open("ab") as file:
        file.write(records)
    recovered = tier.recover()
    assert recovered.verdict is Verdict.WARM
    assert "does not match its checksum" in recovered.bad
    assert recovered.pages == 0
