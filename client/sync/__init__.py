"""The blocking client: for schedulers whose loop is a thread.

A session runs two threads of its own beside gRPC's: one reads replies and reconnects, one reports steps while the
engine is idle. gRPC does not survive a fork: open clients after forking, and let workers attach with a ticket.
"""

from radixd.client.sync.batch import Batch
from radixd.client.sync.client import Client
from radixd.client.sync.lease import Lease
from radixd.client.sync.session import Session

__all__ = ["Batch", "Client", "Lease", "Session"]
