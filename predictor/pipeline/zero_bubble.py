"""Zero-bubble schedules: weight gradients fill what would be bubbles (Qi et al., 2401.10241)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from predictor.pipeline.schedule import Order, Schedule, Work, pp_at_a_time
from predictor.spec.errors import InputError

SOURCE = "Qi et al. 2024, arXiv 2401.10241"


@dataclass(slots=True)
class _Rank:
    """Progress of one rank while the order is made."""

    window: int
    """Forwards that may run ahead of backwards."""
    kept: int
    """Micro-batches whose activations fit."""
    done: list[int] = field(default_factory=lambda: [0, 0, 0])
    """Passes so far, by kind of work."""
    order: list[tuple[int, int, int]] = field(default_factory=list)

    def choose(self, count: int, forwards_there: int, backwards_there: int) -> Work | None:
        """Return the next pass: backward first, then forward, then a waiting weight gradient."""
        forward, backward, weight = self.done
        if backward < min(forward, backwards_there):
            return Work.B
        if forward < min(count, forwards_there) and forward - backward < self.window \
                and forward - weight < self.kept:
            return Work.F
        return Work.W if weight < backward else None


def _list_schedule(pp: int, count: int, *, window: Callable[[int], int], kept: int) -> Order:
    """Run one pass per rank and tick, all passes taking one tick."""
    ranks = [_Rank(window(rank), kept) for rank in range(pp)]
    while any(rank.done[Work.W] < count for rank in ranks):
        before = [tuple(rank.done) for rank in ranks]
        for place, rank in enumerate(ranks):
            forwards = count if place == 0 else before[place - 1][Work.F]
            last = place == pp - 1
            backwards = before[place][Work.F] if last else before[place + 1][Work.B]
            work = rank.choose(count, forwards, backwards)
            if work is not None:
                rank.order.append((work, 0, rank.done[work]))
                rank.done[work] += 1
    return np.array([rank.order for rank in ranks], dtype=np.int64)


def _one_chunk(vpp: int) -> None:
    if vpp > 1:
        raise InputError.of("one-chunk", f"this zero-bubble schedule runs one chunk per rank, not "
                            f"{vpp}", "set vpp to 1 or choose interleaved-1f1b", "strategy.vpp")


def _h1(pp: int, vpp: int, num_microbatches: int, group: int) -> Order:
    """ZB-H1 (section 2.2): 1F1B whose weight gradients wait until a rank would idle."""
    _one_chunk(vpp)
    return _list_schedule(pp, num_microbatches, window=lambda rank: pp - rank, kept=pp)


def _h2(pp: int, vpp: int, num_microbatches: int, group: int) -> Order:
    """ZB-H2 (section 2.2): twice the warm-up of 1F1B."""
    _one_chunk(vpp)
    return _list_schedule(pp, num_microbatches, window=lambda rank: 2 * (pp - rank) - 1,
                          kept=2 * pp - 1)


ZB_H1 = Schedule(
    name="zb-h1",
    summary="1F1B whose weight gradients fill the cool-down; no rank keeps more than 1F1B's first",
    source=SOURCE, build=_h1, group=pp_at_a_time, splits_weight=True)
ZB_1P = replace(
    ZB_H1, name="zb-1p",
    summary="zero bubble within the peak memory of 1F1B; ordered like zb-h1")
"""The authors' ZB-1p searches an order for measured durations; with equal ones it is ZB-H1."""
ZB_2P = Schedule(
    name="zb-2p",
    summary="twice the warm-up and memory of 1F1B; no bubble when the three passes take equally "
            "long",
    source=SOURCE, build=_h2, group=pp_at_a_time, splits_weight=True)
