"""A served pool, and clients of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.caller import Caller
from tests.contract.service import PAGES, LedgerPool, Service


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """One pool of 32 pages. Whatever a test does, the ledger adds up at its end."""
    async with Service(tmp_path / "radixd.sock", LedgerPool("main", PAGES)) as service:
        yield service
        if service.pool.broken is None:
            await service.state()


@pytest.fixture
async def caller(service: Service) -> Caller:
    """A session of its own."""
    return await Caller.open(service)


@pytest.fixture
async def other(service: Service) -> Caller:
    """Another session of the same pool."""
    return await Caller.open(service)
