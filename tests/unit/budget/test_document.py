"""docs/budget.md: its tables are computed, and its prose names no figure that they do not."""

import re

from scripts.budget_tables import DOCUMENT, TABLE, TABLES, with_tables

TEXT = DOCUMENT.read_text(encoding="utf-8")
FIGURE = re.compile(r"\d{1,3}(?:,\d{3})+|\d+\.\d+(?= G)|\d{3,}(?= pages)")
STATED = {
    "8,000,000",  # SGLang's own constant
    "100,000",  # what the table of a hit is asked
    "1,000,000",  # a pool's size, as it is asked for
}


def test_every_table_is_what_the_code_computes() -> None:
    assert with_tables(TEXT) == TEXT, "run python scripts/budget_tables.py"


def test_every_table_has_a_place() -> None:
    assert sorted(found[1] for found in TABLE.finditer(TEXT)) == sorted(TABLES)


def test_a_stale_table_is_noticed() -> None:
    assert with_tables(TEXT.replace("| 53,940 |", "| 53,941 |")) == TEXT


def test_figures_in_prose_stand_in_a_table_too() -> None:
    computed = set(FIGURE.findall("".join(found[0] for found in TABLE.finditer(TEXT))))
    computed |= set(re.findall(r"\d+\.\d\d(?= \|)", TEXT)) | set(re.findall(r"\b\d{3}(?= pages missing)", TEXT))
    prose = TABLE.sub("", TEXT)
    assert set(FIGURE.findall(prose)) - computed - STATED == set()
