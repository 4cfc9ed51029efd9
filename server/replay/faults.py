"""Which requests go wrong on purpose."""

from dataclasses import dataclass
from typing import Self

import numpy as np

MIN_DRAFTED_OUTPUT = 3
"""Drafts are written in a decode step, so a request must have one."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Indices of requests. An aborted request ends half way, with a step in flight; drafts are written and rejected."""

    aborts: frozenset[int] = frozenset()
    drafts: frozenset[int] = frozenset()

    @classmethod
    def choose(cls, output_lengths: list[int], *, aborts: int, rollbacks: int, seed: int) -> Self:
        """Spread both over the workload at random. ValueError if it has too few requests that can bear them."""
        order = np.random.default_rng(seed).permutation(len(output_lengths)).tolist()
        drafted = [index for index in order if output_lengths[index] >= MIN_DRAFTED_OUTPUT][:rollbacks]
        if len(drafted) < rollbacks:
            raise ValueError(
                f"--rollbacks {rollbacks}: only {len(drafted)} requests generate the {MIN_DRAFTED_OUTPUT} tokens that "
                "a rejected draft needs (--decode makes requests generate)"
            )
        chosen = frozenset(drafted)
        aborted = [index for index in order if index not in chosen][:aborts]
        if len(aborted) < aborts:
            raise ValueError(f"--aborts {aborts}: only {len(aborted)} requests are left for them")
        return cls(frozenset(aborted), chosen)
