"""Zero-bubble schedules: weight gradients fill what would be bubbles (Qi et al., 2401.10241)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from predictor.pipeline.schedule import (
    Order, Schedule, one_chunk, passes, pp_at_a_time, woven,
)

SOURCE = "Qi et al. 2024, arXiv 2401.10241"


def _build(pp: int, vpp: int, num_microbatches: int, group: int, *, ahead: int) -> Order:
    """Return the handcrafted order of section 2.2: ``ahead`` 1 is ZB-H1, 2 is ZB-H2.

    A later rank has fewer forwards in flight and puts off as many more weight gradients, so that
    all ranks keep equally many activations.
    """
    one_chunk(vpp)
    forward, backward = passes(group, 1, num_microbatches)
    return np.stack([
        woven(forward, backward, ahead * (pp - rank - 1), weight_lag=ahead * rank)
        for rank in range(pp)])


def _h1(pp: int, vpp: int, num_microbatches: int, group: int) -> Order:
    return _build(pp, vpp, num_microbatches, group, ahead=1)


def _h2(pp: int, vpp: int, num_microbatches: int, group: int) -> Order:
    return _build(pp, vpp, num_microbatches, group, ahead=2)


ZB_H1 = Schedule(
    name="zb-h1",
    summary="1F1B whose weight gradients fill the cool-down; no rank keeps more micro-batches "
            "than 1F1B's first",
    source=SOURCE, build=_h1, group=pp_at_a_time, any_round=True, splits_weight=True)
ZB_1P = replace(
    ZB_H1, name="zb-1p", summary="zero bubble within the peak memory of 1F1B; ordered like zb-h1")
"""The authors' ZB-1p searches an order for measured durations; ZB-H1 is its handcrafted form."""
ZB_2P = Schedule(
    name="zb-2p",
    summary="twice the warm-up and memory of 1F1B; ranks never wait between their first and last "
            "action when the three passes take equally long",
    source=SOURCE, build=_h2, group=pp_at_a_time, any_round=True, splits_weight=True)
"""Ordered like the authors' handcrafted ZB-H2."""
