"""Pages by their one owner, and what pages are."""

from collections.abc import Iterable, Iterator

from prometheus_client.metrics_core import Metric

from radixd.server.observability.families import gauge
from radixd.server.pools.pool import Pool

STATES = ("free", "evictable", "protected", "leased", "retired")
HOST_STATES = ("free", "evictable", "protected", "leased")
SYSTEM_PAGES = 1
"""Of each tier: page 0."""


def pages(pools: Iterable[Pool]) -> Iterator[Metric]:
    """Each tier's ledger: in one scrape the states sum to the size."""
    size = gauge("radixd_pool_pages", "Pages of a tier, the system's included: what radixd_pages sums to", "tier")
    owned = gauge("radixd_pages", "Pages by their one owner", "tier", "state")
    reserved = gauge("radixd_reserved_pages", "Device pages that leases may still claim")
    max_fit = gauge("radixd_max_fit_pages", "The most new pages that an Acquire could be given now")
    in_copy = gauge("radixd_in_copy_pages", "Device pages pinned by copies")
    for pool in pools:
        device = pool.cache.occupancy()
        size.add_metric([pool.name, "device"], device.total + SYSTEM_PAGES)
        owned.add_metric([pool.name, "device", "system"], SYSTEM_PAGES)
        for state in STATES:
            owned.add_metric([pool.name, "device", state], getattr(device, state))
        if pool.tier is not None:
            host = pool.cache.host_occupancy()
            size.add_metric([pool.name, "host"], host.total + SYSTEM_PAGES)
            owned.add_metric([pool.name, "host", "system"], SYSTEM_PAGES)
            for state in HOST_STATES:
                owned.add_metric([pool.name, "host", state], getattr(host, state))
        reserved.add_metric([pool.name], device.reserved_mine + device.reserved_others)
        max_fit.add_metric([pool.name], device.max_fit)
        in_copy.add_metric([pool.name], device.in_copy)
    yield from (size, owned, reserved, max_fit, in_copy)


def trees(pools: Iterable[Pool]) -> Iterator[Metric]:
    """The radix trees, whether a pool is still served, and whether its GPUs answer."""
    nodes = gauge("radixd_tree_nodes", "Nodes of the radix tree")
    generation = gauge("radixd_generation", "The tree's life: Flush adds one")
    broken = gauge("radixd_pool_broken", "1: stopped, its ledger does not add up or its memory is lost")
    silent = gauge("radixd_pool_silent", "1: its GPUs have not answered within the deadline of a copy")
    for pool in pools:
        nodes.add_metric([pool.name], pool.cache.tree.nodes)
        generation.add_metric([pool.name], pool.cache.generation)
        broken.add_metric([pool.name], pool.broken is not None)
        silent.add_metric([pool.name], pool.silent)
    yield from (nodes, generation, broken, silent)


def geometries(pools: Iterable[Pool]) -> Iterator[Metric]:
    """What turns pages into tokens and bytes."""
    info = gauge(
        "radixd_pool_info", "1: what the pool is made of", "geometry", "layout", "device", "policy", "write_policy"
    )
    tokens = gauge("radixd_page_tokens", "Tokens of a page")
    size = gauge("radixd_page_bytes", "Bytes of a page on one device, without padding")
    devices = gauge("radixd_pool_devices", "Devices that each hold every page")
    of_token = gauge("radixd_token_bytes", "Bytes of a token on one device, all layers of a component", "component")
    for pool in pools:
        geometry, config = pool.geometry, pool.cache.config
        write_policy = config.write_policy.value if config.host_pages else ""
        info.add_metric([pool.name, geometry.name, pool.layout_kind, pool.device_kind, pool.policy, write_policy], 1)
        tokens.add_metric([pool.name], geometry.page_size)
        size.add_metric([pool.name], geometry.bytes_per_page)
        devices.add_metric([pool.name], pool.devices)
        for component in geometry.components:
            per_token = len(component.layers) * component.bytes_per_token
            of_token.add_metric([pool.name, component.name], per_token)
    yield from (info, tokens, size, devices, of_token)
