"""The ledgers as replies and metrics tell them."""

from __future__ import annotations

from radixd.server.cache.admission import Admission
from radixd.server.cache.copies import Copies
from radixd.server.cache.results import HostOccupancy, Occupancy
from radixd.server.cache.session import Session
from radixd.server.cache.tier import Tier


def device_occupancy(device: Tier, admission: Admission, copies: Copies, viewer: Session | None) -> Occupancy:
    """The device's pages now, as one session, or (None) nobody, sees them."""
    ledger, evictable = device.ledger, device.evictable
    reserved_mine = admission.reserved_by[viewer.session_id] if viewer is not None else 0
    reserved_others = admission.reserved - reserved_mine
    return Occupancy(
        total=ledger.total,
        free=ledger.free,
        evictable=evictable,
        protected=device.protected,
        leased=ledger.leased,
        retired=ledger.retired,
        retired_mine=viewer.retired_pages if viewer is not None else 0,
        in_copy=copies.pages,
        reserved_mine=reserved_mine,
        reserved_others=reserved_others,
        available=max(0, ledger.free + evictable - reserved_others),
        max_fit=admission.max_fit,
    )


def host_occupancy(host: Tier) -> HostOccupancy:
    """The host tier's pages now."""
    ledger = host.ledger
    return HostOccupancy(ledger.total, ledger.free, host.evictable, host.protected, ledger.leased)
