"""What was measured, as a table for people and as JSON for programs."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

CONSOLE = Console(width=132)


def duration(nanoseconds: float) -> str:
    """12.3 µs, 4.56 ms: three digits."""
    value, unit = (nanoseconds / 1e3, "µs") if nanoseconds < 1e6 else (nanoseconds / 1e6, "ms")
    return f"{value:.{max(0, 2 - len(str(int(value))) + 1)}f} {unit}"


def size(nbytes: float) -> str:
    """21.4 B."""
    return f"{nbytes:.1f} B"


@dataclass(frozen=True)
class Row:
    """One case: radixd beside its reference, both medians of the same run, in nanoseconds or in bytes."""

    case: str
    radixd: float
    reference: float | None  # None: the reference is not installed
    reference_name: str
    target: float | None = None  # the most that the ratio should be
    also: Mapping[str, float] = field(default_factory=dict)  # further references
    form: Callable[[float], str] = duration

    @property
    def ratio(self) -> float | None:
        """Below 1: radixd costs less."""
        return None if self.reference is None else self.radixd / self.reference

    @property
    def verdict(self) -> str:
        """met, MISSED, or nothing where there is no target or no reference."""
        if self.target is None or self.ratio is None:
            return ""
        return "met" if self.ratio <= self.target else "MISSED"

    def cells(self) -> tuple[str, ...]:
        """As the table shows it."""
        reference = "–" if self.reference is None else f"{self.form(self.reference)}  {self.reference_name}"
        also = ", ".join(f"{name} {self.form(value)}" for name, value in self.also.items())
        ratio = "–" if self.ratio is None else f"{self.ratio:.2f}"
        target = "" if self.target is None else f"≤ {self.target:g}"
        return self.case, self.form(self.radixd), reference, ratio, target, self.verdict, also

    def record(self) -> dict[str, object]:
        """As JSON holds it."""
        unit = "bytes" if self.form is size else "ns"
        fields = {name: value for name, value in asdict(self).items() if name != "form"}
        return {**fields, "unit": unit, "ratio": self.ratio, "verdict": self.verdict}


def show(title: str, rows: Iterable[Row]) -> None:
    """Prints one part's rows."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("case", no_wrap=True)
    table.add_column("radixd", justify="right", no_wrap=True)
    table.add_column("reference", no_wrap=True)
    for name in ("ratio", "target", ""):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("also", overflow="fold")
    for row in rows:
        table.add_row(*row.cells())
    CONSOLE.print(table)
    CONSOLE.print()


def write_json(path: Path, parts: Mapping[str, Iterable[Row]]) -> None:
    """{"tree": [row, …], …}."""
    path.write_text(json.dumps({part: [row.record() for row in rows] for part, rows in parts.items()}, indent=2) + "\n")
