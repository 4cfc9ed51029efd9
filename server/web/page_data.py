"""A reading as the page's script reads it. Runs on the web thread."""

import base64
from collections.abc import Callable, Sequence
from heapq import nlargest

import numpy as np
from numpy.typing import NDArray

from radixd.server.cache.page_map import PageMap, PageState
from radixd.server.cache.survey import PrefixRow
from radixd.server.plain_message import plain
from radixd.server.web.pool_reading import PoolReading

TOP_PREFIXES = 20
BROKEN_LENGTH = 2_000

STATES = {state.name.lower(): state.value for state in PageState}
"""What the bytes of a map mean."""


def pool_data(reading: PoolReading) -> dict[str, object]:
    """JSON's values. What a client chose is in it as it is: the page writes text, never markup."""
    page_size = reading.occupancy.page_size
    return {
        "occupancy": plain(reading.occupancy),
        "maps": _maps(reading.page_map),
        "prefixes": {
            "by_hits": _top(reading.nodes, page_size, lambda row: (row.hits, row.device_pages + row.host_pages)),
            "by_pages": _top(reading.nodes, page_size, lambda row: (row.device_pages + row.host_pages, row.hits)),
            "surveyed": len(reading.nodes),
        },
        "hit_lengths": reading.hit_lengths,
        "sessions": [plain(session) for session in reading.sessions],
        "session_count": reading.session_count,
        "leases": [row._asdict() for row in reading.leases],
        "broken": reading.broken[:BROKEN_LENGTH] if reading.broken is not None else None,
        "copies": {"in_flight": reading.copies_in_flight, "overdue": reading.copies_overdue},
        "loop_ms": round(1000 * reading.loop_seconds, 3),
    }


def _maps(page_map: PageMap | None) -> dict[str, object] | None:
    if page_map is None:
        return None
    return {
        "states": STATES,
        "device": _base64(page_map.device.paint()),
        "host": _base64(page_map.host.paint()),
        "whole": page_map.whole,
    }


def _base64(states: NDArray[np.uint8]) -> str:
    return base64.b64encode(states.tobytes()).decode("ascii")


def _top(
    nodes: Sequence[PrefixRow], page_size: int, key: Callable[[PrefixRow], tuple[int, int]]
) -> list[dict[str, object]]:
    """The first by `key`; the namespace by its digest, for a salt must not be readable."""
    return [
        {
            "node": row.node,
            "namespace": row.namespace.digest(),
            "end_token": row.end_page * page_size,
            "device_pages": row.device_pages,
            "host_pages": row.host_pages,
            "hits": row.hits,
            "lock_ref": row.lock_ref,
            "priority": row.priority,
        }
        for row in nlargest(TOP_PREFIXES, nodes, key=key)
    ]
