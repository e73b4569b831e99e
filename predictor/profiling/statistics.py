"""The median of repeated timings and how well it is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

LEVEL = 0.95
"""Of the interval around a median."""


@lru_cache(maxsize=4096)
def median_ranks(count: int, level: float = LEVEL) -> tuple[int, int] | None:
    """Return the positions, from 0, of the sorted samples that bound the median.

    The samples below the median are binomial (count, 1/2), whatever the distribution, so the j-th
    smallest and j-th largest hold the median with 1 - 2 P(X < j) (Conover, Practical Nonparametric
    Statistics, section 3.2). None when so few samples cannot reach ``level``.
    """
    tail, best = 0.0, None
    for below in range(count // 2):
        tail += math.comb(count, below) / 2.0**count
        if 1.0 - 2.0 * tail < level:
            break
        best = below
    return None if best is None else (best, count - 1 - best)


def median_interval(samples: Sequence[float]) -> tuple[float, float, float]:
    """Return the median of ``samples`` and the interval that holds the true one.

    With fewer than six samples the interval is unbounded: (median, 0, infinity).
    """
    ordered = sorted(samples)
    count = len(ordered)
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2.0
    ranks = median_ranks(count)
    if ranks is None:
        return middle, 0.0, math.inf
    return middle, ordered[ranks[0]], ordered[ranks[1]]
