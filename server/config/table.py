"""One TOML table being read: errors are collected, and keys that nobody asked for are named with the nearest known."""

import difflib
from collections.abc import Callable, Mapping
from typing import TypeVar

from radixd.gpu_pool import fields

Value = TypeVar("Value")
Option = TypeVar("Option", bound=str)
Read = Callable[[Mapping[str, object], str, str], Value]
"""(table, key, where) -> value; a ValueError says what is wrong with it."""


class ConfigError(ValueError):
    """A configuration that cannot be used; `errors` holds one line for each mistake."""

    def __init__(self, *errors: str) -> None:
        super().__init__("\n".join(errors))
        self.errors = errors


class Table:
    """`data` under the name `where` ("pools[0]."; "" for the root)."""

    def __init__(self, data: Mapping[str, object], where: str) -> None:
        self.where = where
        self._data = data
        self._known: list[str] = []
        self._children: list[Table] = []
        self._errors: list[str] = []

    def child(self, data: Mapping[str, object], where: str) -> "Table":
        """A table inside this one, whose errors are this one's."""
        table = Table(data, where)
        self._children.append(table)
        return table

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def get(self, key: str, read: Read[Value], default: Value) -> Value:
        """`read` of the key, or `default` where it is absent or wrong."""
        self._known.append(key)
        if key not in self._data:
            return default
        try:
            return read(self._data, key, self.where)
        except ValueError as error:
            self.error(str(error))
            return default

    def integer(self, key: str, default: int, low: int, high: int) -> int:
        """An int within [low, high]."""
        return self.get(key, lambda d, k, w: fields.integer(d, k, w, low, high), default)

    def choice(self, key: str, options: tuple[Option, ...], default: Option) -> Option:
        """One of `options`."""
        return self.get(key, lambda d, k, w: fields.choice(d, k, w, options), default)

    def error(self, line: str) -> None:
        """Add a mistake."""
        self._errors.append(line)

    def finish(self) -> None:
        """Raise ConfigError if anything was wrong, here or in a child."""
        errors = self._all_errors()
        if errors:
            raise ConfigError(*errors)

    def _all_errors(self) -> list[str]:
        errors = [*self._errors, *(self._unknown(key) for key in self._data if key not in self._known)]
        for child in self._children:
            errors += child._all_errors()
        return errors

    def _unknown(self, key: str) -> str:
        near = difflib.get_close_matches(key, self._known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(self._known))}"
        return f"{self.where}{key}: unknown; {hint}"
