"""1F1B: a rank runs just enough forwards ahead, then one forward and one backward in turn."""

from __future__ import annotations

import numpy as np

from predictor.pipeline.schedule import (
    Order, Schedule, one_chunk, passes, pp_at_a_time, woven,
)


def _build(pp: int, vpp: int, num_microbatches: int, group: int) -> Order:
    one_chunk(vpp)
    forward, backward = passes(group, 1, num_microbatches)
    return np.stack([woven(forward, backward, pp - rank - 1) for rank in range(pp)])


ONE_F_ONE_B = Schedule(
    name="1f1b",
    summary="rank r runs pp - r - 1 forwards ahead, then one forward, one backward",
    source="PipeDream-Flush, Narayanan et al. 2021, arXiv 2006.09503",
    build=_build,
    group=pp_at_a_time, any_round=True)
