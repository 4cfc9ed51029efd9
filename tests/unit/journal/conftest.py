"""A host tier in a directory of its own."""

from pathlib import Path

import pytest

from tests.unit.journal.tier import Tier


@pytest.fixture
def tier(tmp_path: Path) -> Tier:
    return Tier(tmp_path)
