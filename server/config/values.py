"""How single values of a configuration are read: each says in one line what is wrong with it."""

import ipaddress
import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

from radixd.gpu_pool import fields
from radixd.gpu_pool.fields import FieldError
from radixd.server.config import Address

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    f"{prefix}iB": 2 ** (10 * power) for power, prefix in enumerate("KMGT", start=1)
}


def pool_name(data: Mapping[str, object], key: str, where: str) -> str:
    """A name that may stand in metrics and paths."""
    name = fields.text(data, key, where, limit=64)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise FieldError(
            f"{where}{key}: {name!r} may hold letters, digits, '.', '_' and '-' alone, the first two first"
        )
    return name


def path(data: Mapping[str, object], key: str, where: str) -> Path:
    """An absolute path."""
    text = fields.text(data, key, where)
    try:
        absolute = Path(text).expanduser().absolute()
    except RuntimeError as error:  # ~ of nobody
        raise FieldError(f"{where}{key}: {text!r}: {error}") from error
    if "\0" in text:
        raise FieldError(f"{where}{key}: {text!r} holds a null character, which no path may")
    return absolute


def optional_path(data: Mapping[str, object], key: str, where: str) -> Path | None:
    """An absolute path; "off" for none."""
    return None if data[key] == "off" else path(data, key, where)


def seconds(data: Mapping[str, object], key: str, where: str, low: float = 0.05) -> float:
    """Seconds, at least `low`."""
    value = data[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= 86_400:
        raise FieldError(f"{where}{key}: expected seconds within [{low}, 86400], got {value!r}")
    return float(value)


def size(data: Mapping[str, object], key: str, where: str) -> int:
    """Bytes, as a number or as text with a unit."""
    value, nbytes = data[key], Decimal(0)
    if isinstance(value, str) and (found := re.fullmatch(r"(\d+(?:\.\d+)?) ?([A-Za-z]*)", value.strip())):
        number, unit = found.groups()
        nbytes = Decimal(number) * _UNITS.get(unit, 0)
    elif isinstance(value, int) and not isinstance(value, bool):
        nbytes = Decimal(value)
    if 1 <= nbytes < 2**63:
        return int(nbytes)
    shown = repr(value)[:64]
    raise FieldError(f"{where}{key}: expected a number of bytes or text such as '64GiB' or '64 GB', got {shown}")


def address(data: Mapping[str, object], key: str, where: str) -> Address | None:
    """`host:port` on loopback; "off" for none."""
    text = fields.text(data, key, where)
    if text == "off":
        return None
    host, _, port = text.rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.strip("[]")
    try:
        loopback = ipaddress.ip_address(host).is_loopback
        found = Address(host, int(port))
    except ValueError:
        raise FieldError(f"{where}{key}: expected ADDRESS:PORT or 'off', got {text!r}") from None
    if not loopback:
        raise FieldError(
            f"{where}{key}: {host} is not a loopback address, and nothing here is encrypted: "
            "use 127.0.0.1 or [::1] and put a TLS proxy in front"
        )
    if not 0 <= found.port < 2**16:
        raise FieldError(f"{where}{key}: port {found.port} is outside [0, 65535]")
    return found
