"""A process that churns a tier for as long as it lives: `python -m tests.unit.journal.writer_process DIR SEED`."""

import sys
from pathlib import Path

import numpy as np

from tests.unit.journal.tier import Tier, key_of

HOST_PAGES = 200
COMPACT_BYTES = 32 << 10


def churn(tier: Tier, seed: int) -> None:
    """Runs of pages come and go; what hangs on a lost page stays, as it may."""
    rng = np.random.default_rng(seed)
    prefixes = [key for _, (_, (_, key)) in tier.held.items()] or [b""]
    for turn in range(1_000_000):
        pages = rng.choice(np.arange(1, HOST_PAGES + 1, dtype=np.int32), int(rng.integers(1, 12)), replace=False)
        tier.lose(pages)
        if not tier.journal.flush():
            raise SystemExit("the journal is stuck")
        before = prefixes[int(rng.integers(len(prefixes)))] if turn % 4 else b""
        before = before[: 8 * 30]
        key = key_of(*rng.integers(1, 50, len(pages)).tolist())
        tier.keep(before, key, pages)
        prefixes = [*prefixes[-30:], before + key]
        if turn % 3 == 0 and not tier.journal.flush():
            raise SystemExit("the journal is stuck")
        tier.compact()
        if turn == 20:
            print("under way", flush=True)


if __name__ == "__main__":
    churn(Tier(Path(sys.argv[1]), HOST_PAGES, COMPACT_BYTES), int(sys.argv[2]))
