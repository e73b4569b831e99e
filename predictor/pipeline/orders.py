"""Orders of work: for each pipeline rank, the actions of one step in sequence."""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple


class Work(IntEnum):
    """What an action does."""

    F = 0
    B = 1
    W = 2


class Action(NamedTuple):
    """One pass of one micro-batch through one chunk."""

    work: Work
    chunk: int
    microbatch: int


Order = tuple[tuple[Action, ...], ...]
"""Per rank, its actions in sequence."""


def gpipe(pp: int, vpp: int, num_microbatches: int) -> Order:
    """All forwards, then all backwards (Huang et al., arXiv 1811.06965)."""
    forward = [Action(Work.F, 0, i) for i in range(num_microbatches)]
    backward = [Action(Work.B, 0, i) for i in range(num_microbatches)]
    return (tuple(forward + backward),) * pp


def one_f_one_b(pp: int, vpp: int, num_microbatches: int) -> Order:
    """Rank r runs pp - r - 1 forwards ahead, then one forward, one backward (PipeDream-Flush)."""
    return tuple(_woven([Action(Work.F, 0, i) for i in range(num_microbatches)],
                        [Action(Work.B, 0, i) for i in range(num_microbatches)],
                        pp - rank - 1) for rank in range(pp))


def interleaved(pp: int, vpp: int, num_microbatches: int) -> Order:
    """Chunks take turns in groups of pp micro-batches (Narayanan et al., arXiv 2104.04473), or of
    more when pp does not divide them.

    The warm-up of rank r is 2 (pp - r - 1) + (vpp - 1) x group size, as in Megatron-Core
    schedules.py.
    """
    if vpp == 1:
        return one_f_one_b(pp, vpp, num_microbatches)
    size = _group_size(pp, num_microbatches)
    groups = [range(first, min(first + size, num_microbatches))
              for first in range(0, num_microbatches, size)]
    forward = [Action(Work.F, chunk, i) for group in groups for chunk in range(vpp) for i in group]
    backward = [Action(Work.B, vpp - 1 - chunk, i)
                for group in groups for chunk in range(vpp) for i in group]
    return tuple(_woven(forward, backward, 2 * (pp - rank - 1) + (vpp - 1) * size)
                 for rank in range(pp))


def _group_size(pp: int, num_microbatches: int) -> int:
    """Smallest microbatch_group_size_per_vp_stage that Megatron-Core schedules.py accepts: what is
    left over is nothing or fills the pipeline, else ranks would wait for each other.
    """
    sizes = range(pp, num_microbatches + 1)
    return next((n for n in sizes if num_microbatches % n == 0 or num_microbatches % n >= pp), pp)


def _woven(forward: list[Action], backward: list[Action], warm_up: int) -> tuple[Action, ...]:
    ahead = min(warm_up, len(forward))
    steady = [action for pair in zip(forward[ahead:], backward, strict=False) for action in pair]
    return (*forward[:ahead], *steady, *backward[len(forward) - ahead:])
