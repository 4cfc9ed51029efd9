"""What the host tier tells its journal, in the order in which it happened."""

from __future__ import annotations

from dataclasses import dataclass

from radixd.server.cache.namespace import Namespace
from radixd.server.cache.results import PageIds


@dataclass(frozen=True, slots=True, eq=False)
class Lost:
    """These host pages no longer hold what was said of them, and may be overwritten once that is on disk."""

    host_pages: PageIds


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """A confirmed, published run of host pages.

    `key` is the run's key elements, as many bytes for each of `host_pages`; `parent` the chain hash of the page before
    the run, chain.ROOT at the root of `namespace`.
    """

    namespace: Namespace
    parent: bytes
    key: bytes
    host_pages: PageIds
