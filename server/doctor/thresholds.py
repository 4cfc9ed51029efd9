"""Where usual ends. The alerts of deploy/prometheus draw the same lines, and a test holds both together."""

CAPACITY_SHARE = 0.98
"""Of a plan's tokens; a pool that holds fewer lacks something."""

REFUSED_BY_GRANTED = 2.0
"""Refused requests that need so many times the pages of granted ones starve."""

HIT_SHARE = 0.5
"""Of the requested tokens: a hit rate that should show in first tokens."""

SHORT_HIT_TOKENS = 1_024
"""A bound of radixd_hit_length_tokens."""

SHORT_HIT_SHARE = 0.5
"""Of the Acquires."""

LONG_PROMPT_TOKENS = 2_048
"""Prompts of which a short hit is less than half, on average."""

PAIRS_LEFT_BY_SAVED = 1.0
"""P·S by P²/2."""

HOST_HIT_SHARE = 0.5
"""Of the hit tokens."""

PREFILL_TOKENS_PER_SECOND = 10_000
"""What a prefill rank computes, or so; see import_min_pages. A promotion that brings fewer is slower than computing."""

DECODE_INDEX_BYTES = 24e9
"""That a decode step reads: 5 ms of an H200's memory bandwidth."""

DEVICE_BYTES_PER_SECOND = 4.8e12
"""An H200's memory bandwidth."""

IDLE_SECONDS = 30.0
"""Of silence: as radixd_idle_locks_held counts it."""

OLD_LOCK_SECONDS = 3_600.0

HOST_EVICTED_BY_IN = 0.5
HOST_PROMOTED_BY_IN = 0.1
"""Of the pages that are copied to the host: evicted there, and brought back."""

ROUND_TRIP_SECONDS = 60.0
"""In which as many pages as the device has went to the host and came back."""

SKIPPED_SHARE = 0.5
"""Of the pages that left the device."""

TAIL_WASTE_SHARE = 0.05
"""Of the pool's bytes."""

OUTRANKED_SHARE = 0.1
"""Of the pool's pages: locked at a lower priority than whatever can be evicted."""
