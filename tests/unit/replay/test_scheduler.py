"""A replay's scheduler whose daemon is restarted."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from radixd.client import Draining, RadixError, Session, StaleEpoch, Starting, Unreachable
from radixd.server.replay import scheduler
from radixd.server.replay.faults import Faults
from radixd.server.replay.journal import Journal
from radixd.server.replay.workload import WorkloadChoice


def session_that_attaches_to(error: RadixError) -> Session:
    """One whose daemon is gone: attaching asks its successor."""

    def attach() -> None:
        raise error

    return cast("Session", SimpleNamespace(opened=SimpleNamespace(attach_socket="a.attach"), attach=attach))


@pytest.mark.parametrize("kind", [Starting, Draining, StaleEpoch, Unreachable])
def test_a_daemon_that_is_on_its_way_out_or_in_is_waited_for(kind: type[RadixError]) -> None:
    job = scheduler.Job(
        "s", "t", "p", "keep", cast("WorkloadChoice", None), cast("Faults", None), (), one_by_one=False,
        reconnects=0, restarts=True, import_from_peers=False,
    )  # fmt: skip
    session, journal = session_that_attaches_to(kind("gone")), Journal(lambda _: None)
    assert not scheduler._run(job, session, journal, cast("Any", None))
