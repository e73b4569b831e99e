"""Interleaved 1F1B: every rank holds several chunks that take turns."""

from __future__ import annotations

import numpy as np

from predictor.pipeline.schedule import Order, Schedule, passes, woven


def _build(pp: int, vpp: int, num_microbatches: int, group: int) -> Order:
    forward, backward = passes(group, vpp, num_microbatches)
    ahead = 1 if vpp == 1 else 2
    return np.stack([woven(forward, backward, ahead * (pp - rank - 1) + (vpp - 1) * group)
                     for rank in range(pp)])


def _group(pp: int, num_microbatches: int) -> int:
    """Return the smallest microbatch_group_size_per_vp_stage that Megatron-Core schedules.py
    accepts: what is left over is nothing or fills the pipeline, else ranks wait for each other.
    """
    sizes = range(pp, num_microbatches + 1)
    left = ((size, num_microbatches % size) for size in sizes)
    return next((size for size, rest in left if rest == 0 or rest >= pp), pp)


INTERLEAVED = Schedule(
    name="interleaved-1f1b",
    summary="vpp chunks on each rank take turns, pp micro-batches at a time; the bubble is vpp "
            "times smaller, hops are vpp times as many",
    source="Narayanan et al. 2021, arXiv 2104.04473; Megatron-Core schedules.py",
    build=_build,
    group=_group)
"""Rank r runs 2 (pp - r - 1) + (vpp - 1) x group chunk forwards ahead, as Megatron-Core does. With
one chunk it is 1F1B.
"""
