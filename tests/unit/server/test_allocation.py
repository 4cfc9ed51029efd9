"""Memory at start-up: what may come free is waited for, and one pool's lack is no other's."""

from dataclasses import dataclass, field

import pytest

from radixd.server.pools import allocation
from radixd.server.pools.allocation import PoolMemoryError, allocate_pools


@dataclass
class Wanted:
    """A pool that gets its memory once its troubles are over."""

    name: str
    spared: bool = True
    troubles: list[PoolMemoryError] = field(default_factory=list)
    has_memory: bool = False

    def allocate(self) -> None:
        if self.troubles:
            raise self.troubles.pop(0)
        assert not self.has_memory
        self.has_memory = True


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation, "RETRY_SECONDS", 0.0)


def held() -> PoolMemoryError:
    return PoolMemoryError("held by pid 7", may_pass=True)


def test_memory_that_others_hold_is_waited_for_and_keeps_nobody_waiting() -> None:
    pools = [Wanted("a", troubles=[held(), held()]), Wanted("b")]
    assert allocate_pools(pools, wait_seconds=60) == {}
    assert [pool.has_memory for pool in pools] == [True, True]


def test_after_the_wait_the_others_are_served() -> None:
    pools = [Wanted("a", troubles=[held()]), Wanted("b"), Wanted("c", troubles=[PoolMemoryError("no such GPU")])]
    failed = allocate_pools(pools, wait_seconds=0)
    assert {name: str(error) for name, error in failed.items()} == {"a": "held by pid 7", "c": "no such GPU"}
    assert [pool.has_memory for pool in pools] == [False, True, False]


def test_without_any_pool_there_is_nothing_to_serve() -> None:
    with pytest.raises(PoolMemoryError, match="no such GPU"):
        allocate_pools([Wanted("a", troubles=[PoolMemoryError("no such GPU")])], wait_seconds=60)


def test_a_pool_that_is_not_spared_ends_it_all() -> None:
    pools = [Wanted("a"), Wanted("b", spared=False, troubles=[PoolMemoryError("too large")])]
    with pytest.raises(PoolMemoryError, match="too large"):
        allocate_pools(pools, wait_seconds=60)
