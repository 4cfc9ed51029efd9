"""A daemon that hands out other memory than a pool's own, for pools whose name begins with "estranged".

While the file $HOLD_PROBE is there, its self-test's probe does not begin. It has $PROBE_PATIENCE seconds to answer.
"""

import os
import sys

from radixd.gpu_pool.cpu import CpuDevice
from radixd.gpu_pool.handle import Handle
from radixd.server import self_test
from radixd.server.cli import main

HOLD, PATIENCE = "HOLD_PROBE", "PROBE_PATIENCE"
WAIT = f"import os, time\nwhile os.path.exists(os.environ.get('{HOLD}', '')): time.sleep(0.02)\n"

_init, _export = CpuDevice.__init__, CpuDevice.export
_others: dict[CpuDevice, CpuDevice] = {}


def init(self: CpuDevice, nbytes: int, name: str = "radixd") -> None:
    _init(self, nbytes, name)
    if name.startswith("radixd-estranged"):
        _others[self] = CpuDevice(nbytes)


def export(self: CpuDevice) -> Handle:
    return _export(_others.get(self, self))


if __name__ == "__main__":
    CpuDevice.__init__, CpuDevice.export = init, export
    self_test.PROBE = (sys.executable, "-c", f"{WAIT}from radixd.client.attach_probe import main\nmain()")
    self_test.PATIENCE_SECONDS = float(os.environ.get(PATIENCE, self_test.PATIENCE_SECONDS))
    sys.exit(main())
