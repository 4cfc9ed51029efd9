"""A worker: attaches with a ticket from stdin, makes no RPC, and writes each slot's number into its first bytes.

Run as a program. Prints "wrote", then waits for stdin to end.
"""

import sys

import torch

from radixd.client.attach import attach
from radixd.client.ticket import AttachTicket


def main() -> None:
    ticket = AttachTicket.from_json(sys.stdin.readline())
    slots = torch.tensor([int(slot) for slot in sys.stdin.readline().split()])
    with attach(ticket) as attachment:
        rows = attachment.views[0].token_rows[0]
        rows[slots // rows.shape[1], slots % rows.shape[1], 0, 0] = slots.to(rows.dtype)
        print("wrote", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
