"""Bytes for people."""

UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def byte_text(nbytes: int) -> str:
    """In the largest unit of which it is about one at least: "1.00 GiB", "52.50 MiB", "640 bytes"."""
    power = 0
    while nbytes >= 0.995 * 1024 ** (power + 1) and power + 1 < len(UNITS):
        power += 1
    return f"{nbytes / 1024**power:.{2 if power else 0}f} {UNITS[power]}"


def both_units(nbytes: int) -> str:
    """Decimal and binary, each named: "56.56 GB = 52.68 GiB"."""
    return f"{nbytes / 10**9:.2f} GB = {nbytes / 2**30:.2f} GiB"
