"""A pool of the daemon: a cache, the memory it stands for, and the copies between tiers and between pools."""
