"""Times by formula. Each holds in the stated domain, where tests prove it equal to the simulator.

All take ranks ``pp``, micro-batches ``count``, and seconds per micro-batch: ``forward_s``,
``backward_s``, ``weight_s`` of one stage (all stages alike unless said otherwise) and ``link_s`` of
one hop. They return the makespan in seconds. Outside the domains use
:func:`predictor.pipeline.batched.pipeline_times`: with unequal stages, sum + (m - 1) max errs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def gpipe_rank_s(count: Ints, forward_s: Floats, backward_s: Floats, link_s: Floats,
                 blocking: Bools) -> tuple[Floats, Floats]:
    """Return start and end of every rank, shape (strategies, ranks), for any stages and links.

    ``forward_s`` and ``backward_s`` have shape (strategies, ranks), the others (strategies,). All
    micro-batches are alike, so each half is a flow shop of identical jobs: one passes every
    stage, the others queue at the slowest so far.
    """
    pp = forward_s.shape[1]
    hops = np.where(np.isin(np.arange(pp), (0, pp - 1)), 1, 2) * (pp > 1)
    held_s = np.where(blocking, link_s, 0.0)[:, None] * hops
    link, queue = link_s[:, None], (count - 1)[:, None]
    up = np.cumsum(forward_s, axis=1) + link * np.arange(pp)
    turned = up[:, -1] + queue[:, 0] * (forward_s + held_s).max(axis=1)
    down = np.cumsum(backward_s[:, ::-1], axis=1) + link * np.arange(pp)
    slowest = np.maximum.accumulate((backward_s + held_s)[:, ::-1], axis=1)
    end_s = turned[:, None] + (down + queue * slowest)[:, ::-1]
    return up - forward_s, end_s


def one_f_one_b_s(pp: int, count: int, forward_s: float, backward_s: float) -> float:
    """Return 1F1B without link delay, which GPipe equals: (m + p - 1)(F + B). Any m."""
    return (count + pp - 1) * (forward_s + backward_s)


def one_f_one_b_linked_s(pp: int, count: int, forward_s: float, backward_s: float,
                         link_s: float) -> float:
    """Return 1F1B with links that do not block, for ``link_s`` up to the shorter pass.

    A round trip takes 2 (p - 1) hops and lets p micro-batches pass, so the steady state pays
    2 (p - 1) / p hops for each: warm-up has no micro-batch to spare that would hide them.
    """
    hops = pp - 1 + (count - 1) * (pp - 1) // pp
    return one_f_one_b_s(pp, count, forward_s, backward_s) + 2 * hops * link_s


def one_f_one_b_blocking_s(pp: int, count: int, forward_s: float, backward_s: float,
                           link_s: float) -> float:
    """Return 1F1B with links that block, for p > 1 and ``link_s`` up to the shorter pass.

    A rank between two others exchanges twice per micro-batch, ends of a pipeline once.
    """
    steady = count - 1 if pp == 2 else max(2 * (count - 1) - 1, 0)
    hops = 2 * (pp - 1) + steady
    return one_f_one_b_s(pp, count, forward_s, backward_s) + hops * link_s


def interleaved_s(pp: int, vpp: int, count: int, forward_s: float, backward_s: float) -> float:
    """Return interleaved 1F1B without link delay: (m v + p - 1)(F + B). m >= p.

    ``forward_s`` and ``backward_s`` are of one chunk, so the bubble is (p - 1) / (v m) of the work
    (Narayanan et al. 2021, arXiv 2104.04473, section 2.2.2).
    """
    return (count * vpp + pp - 1) * (forward_s + backward_s)


def zb_h1_s(pp: int, count: int, forward_s: float, backward_s: float, weight_s: float) -> float:
    """Return ZB-H1 without link delay: m (F + B + W) + (p - 1)(F + B - W). m >= p, W <= F, W <= B.

    Qi et al. 2024, arXiv 2401.10241, table 2.
    """
    work = count * (forward_s + backward_s + weight_s)
    return work + (pp - 1) * (forward_s + backward_s - weight_s)
