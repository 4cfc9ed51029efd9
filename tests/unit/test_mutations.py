"""Every planted fault still has its one place in the source; planting them takes minutes, and is done by hand."""

from pathlib import Path

import pytest

from scripts.mutations import MUTATIONS, Mutation

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda it: it.name.replace(" ", "-"))
def test_a_fault_has_one_place(mutation: Mutation) -> None:
    assert (ROOT / mutation.path).read_text().count(mutation.old) == 1
