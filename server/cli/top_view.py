"""How `radixd top` looks. Text from clients is shown as Python would quote it, never as markup."""

from collections.abc import Iterator, Mapping
from heapq import nlargest
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from radixd.v1 import admin_pb2, types_pb2

PAGE_ID_BYTES = 4
BAR_CELLS = 72
ROWS = 10
STYLES = {"free": "bright_black", "evictable": "cyan", "protected": "blue", "leased": "yellow", "retired": "red"}
COUNTERS = {
    "requested_tokens": "requested tokens",
    "hit_tokens": "hit tokens",
    "inserted_pages": "inserted",
    "evicted_pages": "evicted",
    "demoted_pages": "demoted",
    "promoted_pages": "promoted",
    "offloaded_pages": "offloaded",
    "restored_pages": "restored",
    "failed_copy_pages": "failed copies",
}
SESSION_COLUMNS = (
    "session",
    "name",
    "state",
    "silent s",
    "steps",
    "active",
    "waiting",
    "leased",
    "reserved",
    "retired",
)
PREFIX_COLUMNS = ("node", "namespace", "ends at token", "pages", "host", "hits", "locks", "priority")


class Sample(NamedTuple):
    """One reading of the daemon, `at` a monotonic second."""

    at: float
    occupancy: admin_pb2.OccupancyResponse
    sessions: admin_pb2.ListSessionsResponse
    trees: Mapping[str, admin_pb2.DumpTreeResponse]


def view(sample: Sample, previous: Sample | None) -> RenderableType:
    """Every pool; with rates where there is an earlier reading of the same epoch."""
    reply = sample.occupancy
    if previous is not None and previous.occupancy.epoch != reply.epoch:
        previous = None
    before = {pool.pool: pool for pool in previous.occupancy.pools} if previous else {}
    seconds = sample.at - previous.at if previous else 0.0
    parts: list[RenderableType] = [
        Text(f"radixd {reply.server_version}, epoch {reply.epoch}, up {reply.uptime_seconds:,.0f} s", style="bold")
    ]
    for pool in reply.pools:
        parts += _pool(pool, before.get(pool.pool), seconds, sample)
    return Group(*parts)


def _pool(
    pool: admin_pb2.PoolOccupancy, before: admin_pb2.PoolOccupancy | None, seconds: float, sample: Sample
) -> Iterator[RenderableType]:
    kind = f"{pool.geometry}, {pool.devices} x {pool.device_kind}, {pool.policy}, generation {pool.generation}"
    yield Text()
    yield Text.assemble((pool.pool, "bold"), f"  {kind}, {pool.nodes:,} nodes")
    yield from _ledger("device", pool.device)
    if pool.host.total:
        yield from _ledger("host", pool.host)
    yield _counters(pool, before, seconds)
    sessions = [session for session in sample.sessions.sessions if session.pool == pool.pool]
    if sessions:
        yield Text()
        yield _sessions(sessions)
    tree = sample.trees[pool.pool]
    if tree.nodes:
        yield Text()
        yield _prefixes(tree)


def _ledger(title: str, ledger: types_pb2.Occupancy | types_pb2.HostOccupancy) -> Iterator[Text]:
    """A bar of the tier's pages by owner, and its figures."""
    counts = {owner: int(getattr(ledger, owner, 0)) for owner in STYLES}
    bar, figures, end, filled = Text(f"{title:>7} "), Text(" " * 8), 0, 0
    for owner, count in counts.items():
        end += count
        upto = BAR_CELLS * end // max(1, ledger.total)
        bar.append("█" * (upto - filled), STYLES[owner])
        filled = upto
        figures.append(f"{owner} ", STYLES[owner]).append(f"{count:,}  ")
    yield bar.append(f" {ledger.total:,}")
    yield figures


def _counters(pool: admin_pb2.PoolOccupancy, before: admin_pb2.PoolOccupancy | None, seconds: float) -> Text:
    line = Text(" " * 8)
    for name, title in COUNTERS.items():
        count = int(getattr(pool, name))
        if not count and not name.endswith("tokens"):
            continue
        line.append(f"{title} ", "bright_black").append(f"{count:,}")
        if before is not None and seconds > 0:
            line.append(f" ({(count - int(getattr(before, name))) / seconds:,.0f}/s)")
        line.append("  ")
    if pool.requested_tokens:
        line.append("hit rate ", "bright_black").append(f"{pool.hit_tokens / pool.requested_tokens:.1%}")
    return line


def _sessions(sessions: list[admin_pb2.SessionInfo]) -> Table:
    table = _table(SESSION_COLUMNS, left=("name", "state"))
    for item in sessions[:ROWS]:
        _row(
            table, item.session_id, repr(item.client_name),
            "ended" if item.ended else "streaming" if item.streaming else "no stream", f"{item.idle_seconds:.1f}",
            f"{item.completed:,}/{item.launched:,}", item.active_leases, item.waiting_leases, item.leased_pages,
            item.reserved_pages, item.retired_pages,
        )  # fmt: skip
    if len(sessions) > ROWS:
        table.caption = f"{ROWS} of {len(sessions):,} sessions"
    return table


def _prefixes(tree: admin_pb2.DumpTreeResponse) -> Table:
    table = _table(PREFIX_COLUMNS, left=("namespace",))
    for node in nlargest(ROWS, tree.nodes, key=lambda node: (node.hits, node.tokens)):
        _row(
            table, node.id, node.namespace, node.start_token + node.tokens, len(node.pages) // PAGE_ID_BYTES,
            len(node.host_pages) // PAGE_ID_BYTES, node.hits, node.lock_ref, node.priority,
        )  # fmt: skip
    if tree.total_nodes > len(tree.nodes):
        table.caption = f"most hit of the first {len(tree.nodes):,} of {tree.total_nodes:,} nodes"
    return table


def _table(columns: tuple[str, ...], left: tuple[str, ...]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, caption_justify="left")
    for name in columns:
        table.add_column(name, justify="left" if name in left else "right", no_wrap=True)
    return table


def _row(table: Table, *cells: str | int) -> None:
    table.add_row(*(Text(f"{cell:,}" if isinstance(cell, int) else cell) for cell in cells))
