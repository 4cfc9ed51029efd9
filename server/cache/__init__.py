"""The core: the radix tree over one pool's pages, its leases and its ledger. Pure data that one thread owns."""
