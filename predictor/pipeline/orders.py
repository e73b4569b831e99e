"""Orders of work: for each pipeline rank, the actions of one step in sequence.

An order is an array of shape (ranks, actions, 3) with columns work, chunk, micro-batch.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Order = NDArray[np.int64]


class Work(IntEnum):
    """What an action does."""

    F = 0
    """Forward."""
    B = 1
    """Backward: input gradients, and weight gradients where the schedule does not split them."""
    W = 2
    """Weight gradients, in zero-bubble schedules."""


def gpipe(pp: int, vpp: int, num_microbatches: int) -> Order:
    """All forwards, then all backwards (Huang et al., arXiv 1811.06965)."""
    one = np.concatenate(_passes(1, 1, num_microbatches))
    return np.broadcast_to(one, (pp, *one.shape))


def one_f_one_b(pp: int, vpp: int, num_microbatches: int) -> Order:
    """Rank r runs pp - r - 1 forwards ahead, then one forward, one backward (PipeDream-Flush)."""
    forward, backward = _passes(1, 1, num_microbatches)
    return np.stack([_woven(forward, backward, pp - rank - 1) for rank in range(pp)])


def interleaved(pp: int, vpp: int, num_microbatches: int) -> Order:
    """Chunks take turns in groups of pp micro-batches (Narayanan et al., arXiv 2104.04473), or of
    more when pp does not divide them.

    The warm-up of rank r is 2 (pp - r - 1) + (vpp - 1) x group size, as in Megatron-Core
    schedules.py.
    """
    if vpp == 1:
        return one_f_one_b(pp, vpp, num_microbatches)
    size = _group_size(pp, num_microbatches)
    forward, backward = _passes(size, vpp, num_microbatches)
    return np.stack([_woven(forward, backward, 2 * (pp - rank - 1) + (vpp - 1) * size)
                     for rank in range(pp)])


def _group_size(pp: int, num_microbatches: int) -> int:
    """Smallest microbatch_group_size_per_vp_stage that Megatron-Core schedules.py accepts: what is
    left over is nothing or fills the pipeline, else ranks would wait for each other.
    """
    sizes = range(pp, num_microbatches + 1)
    return next((n for n in sizes if num_microbatches % n == 0 or num_microbatches % n >= pp), pp)


def _passes(size: int, vpp: int, num_microbatches: int) -> tuple[Order, Order]:
    """Return all forwards and all backwards of one rank in sequence, each (actions, 3).

    Chunks take turns in groups of ``size`` micro-batches.
    """
    microbatch = np.arange(num_microbatches)
    group = np.repeat(microbatch // size, vpp) if vpp > 1 else microbatch
    chunk = np.tile(np.arange(vpp), num_microbatches)
    passed = np.repeat(microbatch, vpp)
    sequence = np.lexsort((passed, chunk, group))
    forward = np.column_stack([np.full(len(passed), Work.F), chunk, passed])[sequence]
    backward = forward.copy()
    backward[:, 0] = Work.B
    backward[:, 1] = vpp - 1 - forward[:, 1]
    return forward, backward


def _woven(forward: Order, backward: Order, warm_up: int) -> Order:
    """Return ``warm_up`` forwards, then forwards and backwards in turn, then what is left."""
    count = len(forward)
    ahead = min(warm_up, count)
    step = np.arange(count)
    # The i-th backward follows the (i + ahead + 1)-th forward.
    key = np.concatenate([2 * step, 2 * (step + ahead) + 1])
    order: Order = np.concatenate([forward, backward])[np.argsort(key, kind="stable")]
    return order
