"""A lease whose verbs block."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from radixd.client.channel import COPY_POLL_SECONDS
from radixd.client.lease import LeaseState, LeaseStatus, Standing
from radixd.client.sync.batch import Batch, lease_verb

if TYPE_CHECKING:
    from radixd.client.sync.session import Session


class Lease(LeaseState):
    """One request. The verbs are Batches of one; see `Batch` for their arguments and for many at once."""

    def __init__(self, standing: Standing, session: Session) -> None:
        super().__init__(standing)
        self.session = session

    match = lease_verb(Batch.match_lease)
    activate = lease_verb(Batch.activate)
    allocate = lease_verb(Batch.allocate)
    insert = lease_verb(Batch.insert)
    free = lease_verb(Batch.free)
    release = lease_verb(Batch.release)
    move = lease_verb(Batch.move)
    offload = lease_verb(Batch.offload)
    restore = lease_verb(Batch.restore)

    def wait_loaded(self, timeout: float) -> None:
        """Send empty Batches until `loading` is empty. For scripts; an engine has other requests to run meanwhile.

        Raises TimeoutError after `timeout` seconds; the lease is as it was.
        """
        self._wait_while(lambda: bool(self.loading), timeout)

    def wait_saved(self, timeout: float) -> None:
        """As `wait_loaded`, until an Offload has ended: the lease is offloaded then, or active where it failed."""
        self._wait_while(lambda: self.status is LeaseStatus.OFFLOADING, timeout)

    def _wait_while(self, busy: Callable[[], bool], timeout: float) -> None:
        end = time.monotonic() + timeout
        while busy():
            if time.monotonic() >= end:
                raise TimeoutError(f"lease {self.lease_id} is still {self.status} after {timeout:g} s")
            time.sleep(COPY_POLL_SECONDS)
            self.session.keep_alive()
