"""What commands print: JSON for programs, tables for people."""

import json
from collections.abc import Iterable, Sequence

import numpy as np
from google.protobuf.message import Message
from rich.console import Console
from rich.table import Table


def print_json(message: Message) -> None:
    """All fields, set or not. Integers stay numbers, which protobuf's own JSON turns into strings past 32 bits."""
    print(json.dumps(_plain(message), indent=2))


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


def _plain(message: Message) -> dict[str, object]:
    return {field.name: _plain_field(message, field.name) for field in message.DESCRIPTOR.fields}


def _plain_field(message: Message, name: str) -> object:
    value = getattr(message, name)
    enum = message.DESCRIPTOR.fields_by_name[name].enum_type
    if isinstance(value, Message):
        return _plain(value)
    if isinstance(value, bytes):  # the contract's bytes hold page ids here
        return np.frombuffer(value, dtype="<i4").tolist()
    if enum is not None and isinstance(value, int):
        return enum.values_by_number[value].name
    if isinstance(value, str | int | float):
        return value
    return [_plain(item) if isinstance(item, Message) else item for item in value]
