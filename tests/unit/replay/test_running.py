"""How far a request has come, when its pages come and go."""

from types import SimpleNamespace

import numpy as np
import pytest

from radixd.server.replay.request import Request
from radixd.server.replay.running import RunningRequest


def lease(**figures: object) -> SimpleNamespace:
    return SimpleNamespace(
        **{"known": 200, "device_tokens": 128, "host_tokens": 64, "peer_tokens": 0, "readable": 128, **figures}
    )


@pytest.fixture
def running() -> RunningRequest:
    running = RunningRequest(Request(0, np.arange(200, dtype=np.uint32), np.arange(50, dtype=np.uint32)))
    running.lease = lease()
    running.start()
    return running


def test_a_hit_counts_when_it_has_arrived(running: RunningRequest) -> None:
    assert (running.arriving, running.first_hit) == (True, None)
    running.arrive()
    assert (running.arriving, running.first_hit, running.first_host_hit, running.launched) == (False, 128, 64, 128)


def test_an_imported_hit_counts_as_a_peers(running: RunningRequest) -> None:
    running.lease = lease(host_tokens=0, peer_tokens=64)
    running.arrive()
    assert (running.first_hit, running.first_host_hit, running.first_peer_hit) == (128, 0, 64)


def test_a_load_that_failed_shortens_the_hit(running: RunningRequest) -> None:
    running.lease = lease(device_tokens=64, host_tokens=0, readable=64)
    running.arrive()
    assert (running.launched, running.first_hit, running.first_host_hit) == (64, 64, 0)


def test_a_restored_request_goes_on_where_it_was(running: RunningRequest) -> None:
    running.arrive()
    running.launched = running.completed = running.inserted = 210
    running.lease = lease(known=211, readable=211)
    running.restore()
    running.arrive()
    assert (running.launched, running.inserted, running.first_hit, running.prefill_to) == (210, 210, 128, 211)


def test_a_restore_that_failed_computes_again_from_what_is_readable(running: RunningRequest) -> None:
    running.arrive()
    running.launched = running.completed = running.inserted = 210
    running.lease = lease(known=211, readable=192)
    running.restore()
    running.arrive()
    assert (running.launched, running.completed, running.inserted, running.prefill_to) == (192, 192, 192, 211)


def test_a_retracted_request_is_preempted_on_purpose_no_more(running: RunningRequest) -> None:
    running.preempt = running.host_is_full = True
    running.retract()
    assert (running.preempt, running.host_is_full, running.arriving) == (False, False, False)
    assert running.reserve_all
