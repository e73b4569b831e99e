"""What the ranks of a measurement tell one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from predictor.profiling.measure import Place


def mean_of(place: Place, group: Any = None) -> Callable[[float], float] | None:
    """Return what turns a rank's value into the mean over the ranks; None for a rank alone.

    ``group`` is a process group of torch; all ranks by default.
    """
    if place.ranks == 1:
        return None
    import torch
    import torch.distributed as dist

    share = 1.0 / dist.get_world_size(group)

    def agree(value: float) -> float:
        cell = torch.tensor([value], dtype=torch.float64, device=place.device)
        dist.all_reduce(cell, op=dist.ReduceOp.SUM, group=group)  # gloo has no mean
        return float(cell.item()) * float(share)

    return agree
