"""One table of what scripts/gpu_check.sh has found, as Markdown: python scripts/gpu_table.py TESTS.xml BENCH.json"""

import json
import platform
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from radixd.gpu_pool.cuda.gpu import visible_gpus


def checks(path: Path) -> Iterator[tuple[str, str, str]]:
    """(what, outcome, seconds) of each test."""
    for case in ET.parse(path).iter("testcase"):
        outcome = next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "ok")
        name = case.attrib["name"].removeprefix("test_").replace("_", " ")
        yield name, outcome.upper() if outcome != "ok" else outcome, f"{float(case.attrib['time']):.1f} s"


def rates(path: Path) -> Iterator[tuple[str, str, str]]:
    """(what, GB/s beside the reference's, ratio) of each measurement."""
    for row in json.loads(path.read_text())["gpu"]:
        yield row["case"], row["verdict"], f"{row['ratio']:.2f} x {row['reference_name']}"


def main() -> None:
    """Print it."""
    tests, bench = map(Path, sys.argv[1:])
    gpus = ", ".join(f"{gpu.name} ({gpu.total_bytes / 2**30:.1f} GiB)" for gpu in visible_gpus())
    print(f"\n{date.today()}, {gpus}, {platform.platform()}\n")
    print("| what | outcome | figure |\n|---|---|---|")
    for row in (*checks(tests), *(rates(bench) if bench.exists() else ())):
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
