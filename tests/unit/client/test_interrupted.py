"""A blocking call that ends without its answer has given up what it would have opened."""

from concurrent.futures import Future

import pytest

from radixd.client.errors import Unreachable
from radixd.client.sync import Session
from tests.unit.client.wire import Wire


class Interrupted(Wire):
    """A session whose every call ends with `error`."""

    def __init__(self, error):
        super().__init__()
        self.error = error
        self.abandoned = []

    def batch(self):
        batch = super().batch()
        batch.send = lambda: self.failed
        batch.abandon = lambda: self.abandoned.append(batch)
        return batch

    @property
    def failed(self):
        future = Future()
        future.set_exception(self.error)
        return future


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Unreachable("gone")])
def test_an_interrupted_acquire_abandons_its_batch(error):
    session = Interrupted(error)
    with pytest.raises(type(error)):
        Session.acquire(session, [1])
    (batch,) = session.abandoned
    assert len(batch.opening) == 1
