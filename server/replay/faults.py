"""Which requests go wrong on purpose."""

from dataclasses import dataclass
from typing import Self

import numpy as np

MIN_DECODED_OUTPUT = 3
"""Drafts are written in a decode step, and half way lies before one, so a request must have one."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Indices of requests, each in one set at most.

    An aborted request ends half way, with a step in flight; a preempted one stops there for a while; drafts are written
    and rejected.
    """

    aborts: frozenset[int] = frozenset()
    drafts: frozenset[int] = frozenset()
    preempts: frozenset[int] = frozenset()

    @classmethod
    def choose(cls, output_lengths: list[int], *, aborts: int, rollbacks: int, preempts: int, seed: int) -> Self:
        """Spread them over the workload at random. ValueError if it has too few requests that can bear them."""
        order = np.random.default_rng(seed).permutation(len(output_lengths)).tolist()
        decoding = [index for index in order if output_lengths[index] >= MIN_DECODED_OUTPUT]
        drafted, preempted = decoding[:rollbacks], decoding[rollbacks:][:preempts]
        for flag, wanted, found in (("rollbacks", rollbacks, drafted), ("preempt", preempts, preempted)):
            if len(found) < wanted:
                raise ValueError(
                    f"--{flag} {wanted}: only {len(found)} requests are left that generate the {MIN_DECODED_OUTPUT} "
                    "tokens it needs (--decode makes requests generate)"
                )
        chosen = {*drafted, *preempted}
        aborted = [index for index in order if index not in chosen][:aborts]
        if len(aborted) < aborts:
            raise ValueError(f"--aborts {aborts}: only {len(aborted)} requests are left for them")
        return cls(frozenset(aborted), frozenset(drafted), frozenset(preempted))
