"""A worker in a process of its own: attaches with a ticket, fills pages late, and waits to be told to end.

Reads from stdin a ticket and a line of page ids. Prints "enqueued" once its kernels are, "written" once they have run,
and ends with stdin. With "again" as argument it attaches and closes fifty times first.
"""

import sys

from radixd.client import AttachTicket
from radixd.client.attach import attach
from radixd.gpu_pool.cuda.gpu import visible_gpus
from tests.gpu.kernel import LateStream


def main() -> None:
    ticket = AttachTicket.from_json(sys.stdin.readline())
    pages = [int(page) for page in sys.stdin.readline().split()]
    for _ in range(50 if "again" in sys.argv else 0):
        attach(ticket).close()
    with attach(ticket) as memory:
        device = memory.views[0].buffer.device
        stream = LateStream(device.index if device.type == "cuda" else visible_gpus()[0].ordinal)
        for page in pages:
            stream.fill(memory.views[0].page_rows[0][page], 7)
        print("enqueued", flush=True)
        stream.finish()
        print("written", flush=True)
        sys.stdin.read()
        stream.close()


if __name__ == "__main__":
    main()
