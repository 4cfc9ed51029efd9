"""What people are told when no daemon serves them."""

import pytest

from radixd.client.channel import no_daemon, not_opened
from radixd.client.errors import Draining, NoPool, Starting, Unreachable


@pytest.mark.parametrize("kind", [Starting, Draining])
def test_a_daemon_that_does_not_serve_yet_is_there_all_the_same(kind):
    told = str(no_daemon("unix:/s", kind("its memory is not ready", retry_after=1.0)))
    assert "the daemon at unix:/s is" in told
    assert "no daemon answers" not in told
    assert "radixd serve" not in told


@pytest.mark.parametrize("error", [Unreachable("UNAVAILABLE"), Starting("not ready", retry_after=1.0), Draining("bye")])
def test_whoever_opens_a_session_learns_of_patience(error):
    told = not_opened("unix:/s", error)
    assert type(told) is type(error)
    assert "`patience=`" in str(told)
    assert getattr(told, "retry_after", None) == getattr(error, "retry_after", None)


def test_what_patience_does_not_mend_stays_as_it_is():
    error = NoPool("no such pool")
    assert not_opened("unix:/s", error) is error
