"""Activations in flight: how many micro-batches every chunk keeps when its rank keeps most."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from predictor.pipeline.registry import SCHEDULES
from predictor.pipeline.schedule import Order, Work, shortened

Ints = NDArray[np.int64]
ROUNDS = 3
"""Rounds after which a longer step keeps no more: the warm-up takes less than two."""


def activations_in_flight(schedule: str, pp: int, vpp: int, num_microbatches: int) -> Ints:
    """Return shape (pp, vpp): micro-batches whose activations each chunk keeps at the peak.

    The peak of a rank is the first moment at which its chunks together keep most. A forward keeps
    them until the pass that needs them last: the backward, or, in schedules that split it, the
    weight gradient. The array is shared between callers and read-only.
    """
    group = SCHEDULES[schedule].group(pp, num_microbatches)
    return _peak(schedule, pp, vpp, shortened(num_microbatches, group, ROUNDS), group)


@lru_cache(maxsize=4096)
def _peak(schedule: str, pp: int, vpp: int, count: int, group: int) -> Ints:
    order = SCHEDULES[schedule].build(pp, vpp, count, group)
    peak = held_at_peak(order, vpp, Work.W if SCHEDULES[schedule].splits_weight else Work.B)
    peak.flags.writeable = False
    return peak


def held_at_peak(order: Order, vpp: int, releases: Work) -> Ints:
    """Return shape (ranks, vpp) for an order whose ``releases`` actions free activations."""
    held = np.cumsum(_changes(order, vpp, releases), axis=1)
    peak = held.sum(axis=2).argmax(axis=1)
    return np.asarray(held[np.arange(len(order)), peak])


def _changes(order: Order, vpp: int, releases: Work) -> Ints:
    """Return shape (ranks, actions, vpp): micro-batches that each action adds to a chunk."""
    work, chunk = order[:, :, 0], order[:, :, 1]
    change = (work == Work.F).astype(np.int64) - (work == releases)
    return np.asarray(change[:, :, None] * (chunk[:, :, None] == np.arange(vpp)))
