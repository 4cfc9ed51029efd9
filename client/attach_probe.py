"""A process that attaches as an engine's worker does and says what it finds: the daemon's self-test runs it.

Reads one JSON object a line: {"ticket": AttachTicket's JSON, "nbytes": how many of each device's first bytes, "by":
"mmap" or "torch"}. Complements each of those bytes in place, and answers with one line: {"found": the SHA-256 of each
device's bytes before that, in hex} or {"error": why there are none}.
"""

import hashlib
import json
import mmap
import sys
from collections.abc import Callable

import numpy as np

from radixd.client.connection import connect
from radixd.client.errors import RadixError
from radixd.client.ticket import AttachTicket
from radixd.gpu_pool import fields

Complement = Callable[[AttachTicket, int], list[str]]


def complement_by_mmap(ticket: AttachTicket, nbytes: int) -> list[str]:
    """For memory that has a descriptor: without torch, whose import takes longer than all else."""
    found = []
    connection = connect(ticket, "worker")
    try:
        for handle in connection.reply.devices:
            if handle.fd is None:
                raise ValueError(f"a pool of kind {handle.kind} has no descriptor to map")
            with mmap.mmap(handle.fd, handle.nbytes) as memory:
                found.append(hashlib.sha256(memory[:nbytes]).hexdigest())
                memory[:nbytes] = (~np.frombuffer(memory[:nbytes], dtype=np.uint8)).tobytes()
    finally:
        connection.close()
    return found


def complement_by_torch(ticket: AttachTicket, nbytes: int) -> list[str]:
    """For any memory, as workers map it."""
    from radixd.client.attach import attach

    found = []
    with attach(ticket) as memory:
        for views in memory.views:
            first = views.buffer[:nbytes]
            found.append(hashlib.sha256(first.cpu().numpy().tobytes()).hexdigest())
            first.bitwise_not_()
            first.cpu()  # a GPU has done it before this ends
            del first, views
    return found


COMPLEMENTS: dict[str, Complement] = {"mmap": complement_by_mmap, "torch": complement_by_torch}


def answer(line: str) -> str:
    """The answer to one line."""
    request = fields.mapping(json.loads(line), "request")
    ticket = AttachTicket.from_json(fields.text(request, "ticket", "", limit=4096))
    complement = COMPLEMENTS[fields.choice(request, "by", "", tuple(COMPLEMENTS))]
    try:
        return json.dumps({"found": complement(ticket, fields.integer(request, "nbytes", ""))})
    except (RadixError, OSError, RuntimeError, ValueError) as error:
        return json.dumps({"error": " ".join(str(error).split())})


def main() -> None:
    """Answer until stdin ends."""
    for line in sys.stdin:
        print(answer(line), flush=True)


if __name__ == "__main__":
    main()
