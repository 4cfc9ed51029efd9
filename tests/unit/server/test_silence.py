"""When a session has been silent for too long, and when only the daemon was."""

import pytest

from radixd.server.sessions.liveness import TICK_SECONDS, Silence


def ticks_until_over(silence: Silence, elapsed: float = TICK_SECONDS) -> int:
    ticks = 1
    while not silence.over(elapsed):
        ticks += 1
    return ticks


@pytest.mark.parametrize("allowed", [1.0, 10.0, 30.0])
def test_silence_is_over_one_full_tick_after_it_has_lasted_too_long(allowed: float) -> None:
    # The tick that passes the limit, and one more.
    assert ticks_until_over(Silence(allowed)) == allowed + 2


def test_a_stall_of_the_daemon_counts_for_two_periods() -> None:
    silence = Silence(10.0)
    assert not silence.over(3_600.0)
    assert silence.seconds == 2 * TICK_SECONDS


def test_a_stall_past_the_limit_still_leaves_a_full_tick_to_speak() -> None:
    silence = Silence(1.0)
    assert not silence.over(3_600.0)
    assert not silence.over(0.001)  # ticks that catch up are no time to speak in
    assert not silence.over(0.5)
    silence.broken(1.0)
    assert ticks_until_over(silence) == 3


def test_speaking_begins_anew_with_what_is_allowed_now() -> None:
    silence = Silence(30.0)
    silence.over(1.0)
    silence.broken(10.0)
    assert silence.seconds == 0
    assert ticks_until_over(silence) == 12
