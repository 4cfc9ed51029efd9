"""A scrape of a daemon after a replay that went well, and the same with other numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from radixd.server.doctor.evidence import Evidence, NodeFacts, SessionFacts
from radixd.server.doctor.expectation import Expectation
from radixd.server.doctor.finding import Finding
from radixd.server.doctor.scrape import Scrape

HEALTHY = Path(__file__).with_name("healthy.prom")
P = 64
PAGES = 1_000
GLM = {"latent": 51_168, "index": 2_772}


def text(changes: Mapping[str, float] | None = None) -> str:
    """The saved scrape; `changes` are of series without the label `pool`, such as radixd_pages{state="free"}."""
    lines = HEALTHY.read_text().splitlines()
    for series, value in (changes or {}).items():
        name, _, labels = series.removesuffix("}").partition("{")
        wanted = {*labels.split(",")} - {""}
        places = [i for i, line in enumerate(lines) if line.split("{")[0].split(" ")[0] == name and wanted <= has(line)]
        assert len(places) == 1, f"{series}: {len(places)} of them"
        (place,) = places
        lines[place] = f"{lines[place].rpartition(' ')[0]} {float(value)}"
    return "\n".join(lines) + "\n"


def has(line: str) -> set[str]:
    return {*line.partition("{")[2].partition("}")[0].split(",")}


def scrape(changes: Mapping[str, float] | None = None) -> Scrape:
    return Scrape.parse(text(changes))


def evidence(
    changes: Mapping[str, float] | None = None,
    *,
    before: Mapping[str, float] | None = None,
    seconds: float | None = None,
    sessions: Sequence[SessionFacts] | None = None,
    tree: Sequence[NodeFacts] | None = None,
    expected: Expectation | None = None,
) -> Evidence:
    return Evidence(
        "default",
        scrape(changes),
        None if before is None else scrape(before),
        seconds,
        None if sessions is None else tuple(sessions),
        None if tree is None else tuple(tree),
        expected,
    )


def session(name: str, *, ended: bool = False, idle: float = 0.0, **pages: int) -> SessionFacts:
    held = {"active_leases": 1, "leased": 0, "reserved": 0, "retired": 0, **pages}
    return SessionFacts(7, name, (123,), ended, idle, **held)


def facts(finding: Finding | None) -> dict[str, float | str]:
    assert finding is not None
    return {fact.what: fact.value for fact in finding.evidence}
