"""A plan made for a configuration predicts the daemon's pages."""

import json
from pathlib import Path

from radixd.v1 import admin_pb2
from tests.e2e.conftest import StartDaemon
from tests.e2e.daemon_process import PATIENCE_S, radixd

POOLS = """
[[pools]]
geometry = "glm-5.3"
device = "meta"
bytes = "100GB"
stride_multiple = 656
[[pools]]
name = "small"
geometry = "tiny"
tokens = 6500
host_bytes = "1MB"
"""


def test_the_daemon_has_the_pages_that_its_plan_says(folder: Path, start_daemon: StartDaemon) -> None:
    config = folder / "radixd.toml"
    config.write_text(POOLS)
    planned = radixd("plan", "--config", str(config), "--json")
    assert planned.returncode == 0, planned.stderr
    daemon = start_daemon("--config", str(config)).serving()
    reply = daemon.admin.Occupancy(admin_pb2.OccupancyRequest(), timeout=PATIENCE_S)
    served = [(pool.device.total, pool.host.total) for pool in reply.pools]
    plans = json.loads(planned.stdout)
    assert served == [(plan["pool"]["pages"], plan.get("host", {}).get("pages", 0)) for plan in plans]
    assert served[0] == (100 * 10**9 // 3_452_528 - 1, 0)
