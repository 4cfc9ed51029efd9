"""What `radixd doctor` prints."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from textwrap import fill

from radixd.server.cli.doctor_reading import Reading
from radixd.server.cli.output import print_table
from radixd.server.doctor.examination import Diagnosis
from radixd.server.doctor.finding import Finding

WIDTH = 100


def report_json(reading: Reading, diagnoses: Sequence[Diagnosis]) -> str:
    """An object whose `pools` have a list of findings each; `daemon` is one of the daemon itself, or null."""
    silent = reading.silent
    return json.dumps(
        {
            "read": reading.origin,
            "daemon": asdict(silent) if silent else None,
            "pools": [asdict(diagnosis) for diagnosis in diagnoses],
        },
        indent=2,
    )


def print_report(reading: Reading, diagnoses: Sequence[Diagnosis]) -> None:
    """For people: causes first, then what was not found, then what these data do not tell."""
    print(reading.origin)
    if reading.silent:
        _print_finding(reading.silent)
    for diagnosis in diagnoses:
        count = len(diagnosis.findings)
        print(f"\npool {diagnosis.pool}: " + (f"{count} finding{'s' * (count != 1)}" if count else "nothing found"))
        for finding in diagnosis.findings:
            _print_finding(finding)
        no = " · ".join(diagnosis.denied)
        print("\n" + fill(no, WIDTH, initial_indent="  no: ", subsequent_indent=" " * 6, break_long_words=False))
        for line in diagnosis.untold:
            print(f"  not told: {line}")


def _print_finding(finding: Finding) -> None:
    print(f"\n  {finding.name}: {finding.cause}\n")
    rows = [(f"    {fact.what}", _shown(fact.value)) for fact in finding.evidence]
    print_table(("    evidence", "value"), rows)
    print(f"\n  next: {finding.next_step}")


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,}"
