"""Values of `radixd plan`'s flags, read as a configuration's are: each says in one line what is wrong with it."""

import re
from collections.abc import Callable, Mapping

from radixd.gpu_pool import fields
from radixd.gpu_pool.budget import BudgetError
from radixd.gpu_pool.budget.scratch import checked_fraction
from radixd.gpu_pool.fields import FieldError
from radixd.server.config import values

MAX_TOKENS = 2**31
MIN_GPU_BYTES = 2**20
_TOKEN_UNITS = {"": 1, "K": 2**10, "M": 2**20}


def tokens(data: Mapping[str, object], key: str, where: str) -> int:
    """A number of tokens: 131072 or 128K, K and M being 2^10 and 2^20."""
    return _tokens(fields.text(data, key, where), f"{where}{key}")


def token_list(data: Mapping[str, object], key: str, where: str) -> tuple[int, ...]:
    """Numbers of tokens, with commas between them."""
    return tuple(_tokens(text, f"{where}{key}") for text in fields.text(data, key, where, limit=4096).split(","))


def file_name(data: Mapping[str, object], key: str, where: str) -> str:
    """A file's name, which an unset variable of a shell is not."""
    name = str(data[key])
    if not name:
        raise FieldError(f"{where}{key}: the name is empty; without the flag it is the preset's plan")
    return name


def gpu_size(data: Mapping[str, object], key: str, where: str) -> int:
    """Bytes of a GPU's memory, as a configuration's sizes are: too few for one lack their unit."""
    nbytes = values.size(data, key, where)
    if nbytes < MIN_GPU_BYTES:
        raise FieldError(f"{where}{key}: {nbytes:,} bytes are less than any GPU has: say the unit, as in 141GB")
    return nbytes


def whole(low: int, high: int) -> Callable[[Mapping[str, object], str, str], int]:
    """A reader of whole numbers within [low, high]."""

    def read(data: Mapping[str, object], key: str, where: str) -> int:
        text = fields.text(data, key, where)
        if not re.fullmatch(r"-?\d{1,19}", text):
            raise FieldError(f"{where}{key}: expected a whole number, got {text!r:.64}")
        if not low <= int(text) <= high:
            raise FieldError(f"{where}{key}: {text} is outside [{low}, {high}]")
        return int(text)

    return read


def fraction(data: Mapping[str, object], key: str, where: str) -> float:
    """A share of a GPU's memory, within (0, 1]."""
    text = fields.text(data, key, where)
    try:
        return checked_fraction(float(text))
    except ValueError as error:
        told = str(error) if isinstance(error, BudgetError) else f"expected a number such as 0.9, got {text!r:.64}"
        raise FieldError(f"{where}{key}: {told}") from None


def changes(data: Mapping[str, object], key: str, where: str) -> Mapping[str, object]:
    """Flags and their other values: "indexer=39,mtp=1"."""
    found: dict[str, object] = {}
    for item in fields.text(data, key, where, limit=4096).split(","):
        name, equals, value = item.partition("=")
        if not equals or not name or not value:
            raise FieldError(f"{where}{key}: expected FLAG=VALUE such as indexer=39, got {item!r:.64}")
        found[name] = value
    return found


def _tokens(text: str, name: str) -> int:
    matched = re.fullmatch(r"(\d{1,19})([KM]?)", text.strip())
    if not matched:
        raise FieldError(f"{name}: expected a number of tokens such as 131072, 128K or 1M, got {text!r:.64}")
    value = int(matched[1]) * _TOKEN_UNITS[matched[2]]
    if not 1 <= value <= MAX_TOKENS:
        raise FieldError(f"{name}: {text.strip()} is outside [1, {MAX_TOKENS}] tokens")
    return value
