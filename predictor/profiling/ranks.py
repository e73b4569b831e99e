"""What the ranks of a measurement tell one another."""

from __future__ import annotations

from collections.abc import Callable

from predictor.profiling.measure import Place


def mean_of(place: Place) -> Callable[[float], float] | None:
    """Return what turns a rank's value into the mean over all ranks; None for a rank alone."""
    return _reduced(place, "AVG") if place.ranks > 1 else None


def largest_of(place: Place) -> Callable[[float], float] | None:
    """Return what turns a rank's value into the largest of all ranks; None for a rank alone."""
    return _reduced(place, "MAX") if place.ranks > 1 else None


def _reduced(place: Place, how: str) -> Callable[[float], float]:
    import torch
    import torch.distributed as dist

    # gloo has no mean.
    operation = dist.ReduceOp.MAX if how == "MAX" else dist.ReduceOp.SUM
    share = 1.0 / place.ranks if how == "AVG" else 1.0

    def agree(value: float) -> float:
        cell = torch.tensor([value], dtype=torch.float64, device=place.device)
        dist.all_reduce(cell, op=operation)
        return float(cell.item()) * share

    return agree
