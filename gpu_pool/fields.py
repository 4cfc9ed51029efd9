"""Typed reading of plain data from outside (JSON, TOML): every error names the field and what was expected."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

Option = TypeVar("Option", bound=str)


class FieldError(ValueError):
    """A field is missing, of the wrong type, or outside its limits; the message names it."""


def mapping(value: object, where: str) -> Mapping[str, object]:
    """`value` as a mapping with string keys."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise FieldError(f"{where}: expected a table of named fields, got {_shown(value)}")
    return value


def integer(data: Mapping[str, object], key: str, where: str, low: int = 0, high: int = 2**63 - 1) -> int:
    """`data[key]` as an int within [low, high]; bools are refused."""
    value = _present(data, key, where)
    if isinstance(value, bool) or not isinstance(value, int):
        raise FieldError(f"{where}{key}: expected an integer, got {_shown(value)}")
    if not low <= value <= high:
        raise FieldError(f"{where}{key}: {value} is outside [{low}, {high}]")
    return value


def text(data: Mapping[str, object], key: str, where: str, limit: int = 256) -> str:
    """`data[key]` as a string of 1 to `limit` characters."""
    value = _present(data, key, where)
    if not isinstance(value, str) or not 0 < len(value) <= limit:
        raise FieldError(f"{where}{key}: expected a string of 1 to {limit} characters, got {_shown(value)}")
    return value


def choice(data: Mapping[str, object], key: str, where: str, options: Sequence[Option]) -> Option:
    """`data[key]` as one of `options`."""
    value = _present(data, key, where)
    for option in options:
        if value == option:
            return option
    raise FieldError(f"{where}{key}: {_shown(value)} is none of {', '.join(options)}")


def sequence(data: Mapping[str, object], key: str, where: str, limit: int = 4096) -> Sequence[object]:
    """`data[key]` as a list of at most `limit` entries."""
    value = _present(data, key, where)
    if not isinstance(value, (list, tuple)) or len(value) > limit:
        raise FieldError(f"{where}{key}: expected a list of at most {limit} entries, got {_shown(value)}")
    return value


def integers(data: Mapping[str, object], key: str, where: str) -> tuple[int, ...]:
    """`data[key]` as a tuple of ints; bools are refused."""
    values = sequence(data, key, where)
    found = tuple(value for value in values if isinstance(value, int) and not isinstance(value, bool))
    if len(found) != len(values):
        raise FieldError(f"{where}{key}: expected integers only")
    return found


def _present(data: Mapping[str, object], key: str, where: str) -> object:
    if key not in data:
        raise FieldError(f"{where}{key}: missing")
    return data[key]


def _shown(value: object) -> str:
    """A value for an error message, cut short: it may be hostile."""
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
