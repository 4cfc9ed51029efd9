"""Reading a pool's host tier from its table."""

from pathlib import Path

from radixd.gpu_pool.layout import Layout, pages_for_bytes, pages_for_tokens
from radixd.server.cache.config import WritePolicy
from radixd.server.config import HostTierConfig, values
from radixd.server.config.table import Table

FREE_SHARE = 32
"""One in so many device pages is kept free, unless the configuration says otherwise."""


def host_tier(table: Table, layout: Layout | None, state_dir: Path | None) -> HostTierConfig:
    """The host tier of a pool of that layout, which is None where it is wrong; the table holds the errors."""
    tokens = table.integer("host_tokens", 0, low=0, high=2**31)
    nbytes = table.get("host_bytes", values.size, 0)
    policy = table.choice("write_policy", tuple(WritePolicy), WritePolicy.WRITE_BACK)
    promote_min_pages = table.integer("promote_min_pages", HostTierConfig.promote_min_pages, low=1, high=2**31)
    most = layout.num_pages if layout else 2**31
    free_target = table.integer("free_target_pages", -1, low=0, high=most)
    max_copy_pages = table.integer("max_copy_pages", HostTierConfig.max_copy_pages, low=1, high=2**31)
    pages = _pages(table, layout, tokens, nbytes) if layout else 0
    if free_target < 0:
        free_target = max(1, layout.num_pages // FREE_SHARE) if layout and pages else 0
    return HostTierConfig(
        pages=pages,
        write_policy=WritePolicy(policy),
        promote_min_pages=promote_min_pages,
        free_target_pages=free_target,
        max_copy_pages=max_copy_pages,
        state_dir=state_dir if pages else None,
    )


def _pages(table: Table, layout: Layout, tokens: int, nbytes: int) -> int:
    geometry, field = layout.geometry, f"{table.where}{'host_tokens' if tokens else 'host_bytes'}"
    if tokens and nbytes:
        table.error(f"{field}: give either host_tokens or host_bytes, not both")
    if not tokens and not nbytes:
        return 0
    try:
        pages = pages_for_tokens(geometry, tokens) if tokens else pages_for_bytes(geometry, nbytes)
        return Layout(geometry, "page_first", pages).num_pages
    except ValueError as error:
        table.error(f"{field}: {error}")
        return 0
