"""An engine in a process of its own: holds a whole pool, lets kernels write all of it late, and waits to be killed.

Argument: the daemon's socket. Prints "enqueued" once the kernels are.
"""

import sys

import numpy as np

from radixd.client import Client
from radixd.gpu_pool.cuda.gpu import visible_gpus
from tests.e2e.daemon_process import MODEL
from tests.gpu.kernel import LateStream


def main() -> None:
    with Client(sys.argv[1]) as client, client.open_session(model=MODEL, name="engine") as session:
        memory = session.attach()
        pool = session.acquire(np.arange(100 * 64, dtype=np.uint32))
        device = memory.views[0].buffer.device
        stream = LateStream(device.index if device.type == "cuda" else visible_gpus()[0].ordinal)
        for page in pool.pages:
            stream.fill(memory.views[0].page_rows[0][int(page)], 7)
        session.step(launched=1)
        session.keep_alive()
        print("enqueued", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
