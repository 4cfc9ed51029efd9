"""What the page shows of a pool, read in one step of the loop that owns it."""

import time
from dataclasses import dataclass
from itertools import islice

from radixd.server.cache.page_map import PageMap, read_page_map
from radixd.server.cache.survey import LeaseRow, PrefixRow, survey_leases, survey_nodes
from radixd.server.pools.pool import Pool
from radixd.server.rpc.convert_admin import pool_occupancy, session_info
from radixd.server.sessions.registry import SessionRegistry
from radixd.v1 import admin_pb2

MAX_SESSIONS = 100
MAX_LEASES = 200
MAX_MAP_PAGES = 2**22
"""A larger tier is counted but not drawn."""


@dataclass(frozen=True, slots=True)
class PoolReading:
    """A pool at one moment; nothing in it changes any more."""

    occupancy: admin_pb2.PoolOccupancy
    sessions: list[admin_pb2.SessionInfo]
    session_count: int
    page_map: PageMap | None
    nodes: list[PrefixRow]
    leases: list[LeaseRow]
    hit_lengths: list[tuple[float | None, int]]
    """Acquires by the tokens that they hit: each range's upper end (None: no end) and its count."""
    broken: str | None
    copies_in_flight: int
    copies_overdue: int
    loop_seconds: float
    """How long the loop was held up for it."""


def read_pool(pool: Pool, registry: SessionRegistry[Pool]) -> PoolReading:
    """On the loop. Its cost is bounded: a copy of a byte a page, and limited numbers of nodes, leases and sessions."""
    start = time.perf_counter()
    cache = pool.cache
    lengths = cache.counters.hit_length
    sessions = [session for session in registry if session.pool is pool]
    drawn = max(cache.config.pages, cache.config.host_pages) <= MAX_MAP_PAGES
    return PoolReading(
        occupancy=pool_occupancy(pool, sessions),
        sessions=[session_info(session) for session in islice(sessions, MAX_SESSIONS)],
        session_count=len(sessions),
        page_map=read_page_map(cache) if drawn else None,
        nodes=survey_nodes(cache),
        leases=survey_leases(cache, MAX_LEASES),
        hit_lengths=[*zip((*lengths.bounds, None), lengths.counts, strict=True)],
        broken=pool.broken,
        copies_in_flight=pool.traffic.in_flight,
        copies_overdue=pool.traffic.overdue,
        loop_seconds=time.perf_counter() - start,
    )
