"""What commands print: JSON for programs, tables for people."""

import json
from collections.abc import Iterable, Sequence

from google.protobuf.message import Message
from rich.console import Console
from rich.table import Table

from radixd.server.plain_message import plain


def print_json(message: Message) -> None:
    """All fields, set or not."""
    print(json.dumps(plain(message), indent=2))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """A table whose numbers stand to the right. Text is shown as it is: it may come from a client."""
    rows = list(rows)
    table = Table(title=title or None, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for i, name in enumerate(columns):
        numeric = all(isinstance(row[i], int | float) for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row))
    # As wide as it is: a long line is easier to read and to search than a folded cell.
    Console(width=1000, markup=False, highlight=False).print(table)
