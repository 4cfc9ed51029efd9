"""Arguments of the verbs on their way into the contract's fields: a wrong one is named, before anything is sent."""

import operator
from collections.abc import Collection
from typing import SupportsIndex

from radixd.client.errors import BadField

MOST = 2**64 - 1
"""The contract's lengths and steps are uint64."""


def count(field: str, value: SupportsIndex, most: int = MOST) -> int:
    """A whole number within [0, most]. Raises BadField."""
    try:
        number = operator.index(value)
    except TypeError:
        raise _bad(field, f"expected a whole number, got {_shown(value)}") from None
    if not 0 <= number <= most:
        raise _bad(field, f"{number} is not within [0, {most}]")
    return number


def count_or_none(field: str, value: SupportsIndex | None, most: int = MOST) -> int | None:
    """As `count`; None leaves the field to the daemon's default."""
    if value is None:
        return None
    try:
        return count(field, value, most)
    except BadField as bad:
        raise _bad(field, f"{bad.args[0].removeprefix(f'{field}: ')}; leave it out, or None, for the default") from None


def seconds_or_none(field: str, value: float | None) -> float | None:
    """A duration; None leaves the field to the daemon's default. Raises BadField."""
    if value is None or (isinstance(value, int | float) and value >= 0):
        return value
    raise _bad(field, f"expected seconds, 0 or more, got {_shown(value)}; leave it out, or None, for ever")


def octets(field: str, value: object) -> bytes:
    """Bytes as they are. Raises BadField: text is encoded by its owner, because every scheduler must do it alike."""
    if isinstance(value, bytes):
        return value
    way = f"write b{value!r}, or encode it" if isinstance(value, str) else "convert it with bytes(…)"
    raise _bad(field, f"expected bytes, got {_shown(value)}: {way}")


def text(field: str, value: object) -> str:
    """Text as it is. Raises BadField."""
    if isinstance(value, str):
        return value
    raise _bad(field, f"expected text, got {_shown(value)}")


def choice(field: str, value: str, choices: Collection[str]) -> str:
    """One of `choices`. Raises BadField."""
    if value in choices:
        return value
    raise _bad(field, f"{value!r} is none of {', '.join(choices)}")


def _bad(field: str, message: str) -> BadField:
    return BadField(f"{field}: {message}", field=field)


def _shown(value: object) -> str:
    return f"{type(value).__name__} {value!r:.40}"
