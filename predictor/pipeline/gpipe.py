"""GPipe: all forwards, then all backwards."""

from __future__ import annotations

import numpy as np

from predictor.pipeline.schedule import Order, Schedule, passes


def _build(pp: int, vpp: int, num_microbatches: int, group: int) -> Order:
    one = np.concatenate(passes(group, vpp, num_microbatches))
    return np.broadcast_to(one, (pp, *one.shape))


GPIPE = Schedule(
    name="gpipe",
    summary="all forwards, then all backwards; every micro-batch stays in memory",
    source="Huang et al. 2019, arXiv 1811.06965",
    build=_build,
    group=lambda pp, num_microbatches: num_microbatches)
"""The round is the whole step: forwards fill it before the first backward. With several chunks a
rank finishes one chunk before the next (breadth-first, Lamy-Poirier 2022, arXiv 2211.05953).
"""
