"""What schedulers and workers import: the RPC client, and attach for the pool memory."""
