"""The bubble is what papers say it is."""

from __future__ import annotations

import numpy as np
import pytest

from predictor.pipeline.batched import PipelineTimes, pipeline_times
from predictor.pipeline.bubble import bubble_fraction, bubble_to_work


def _times(name: str, pp: int, vpp: int, count: int, weight: float = 0.0) -> PipelineTimes:
    ones = np.ones((1, pp * vpp))
    return pipeline_times(name, pp, vpp, np.array([count]), ones, (2 - weight) * ones,
                          weight * ones, np.zeros(1), np.zeros(1, bool))


def test_1f1b_loses_p_minus_1_of_m_plus_p_minus_1():
    times = _times("1f1b", 4, 1, 8)
    assert bubble_fraction(times)[0] == pytest.approx(3 / 11)
    assert bubble_to_work(times)[0] == pytest.approx(3 / 8)


@pytest.mark.parametrize("vpp", [2, 3, 4])
def test_interleaving_divides_the_bubble(vpp):
    """Narayanan et al. 2021, arXiv 2104.04473, section 2.2.2: (p - 1) / (v m)."""
    assert bubble_to_work(_times("interleaved-1f1b", 4, vpp, 8))[0] == pytest.approx(3 / (8 * vpp))


def test_zb_h1_leaves_a_third_of_the_bubble():
    """Qi et al. 2024, arXiv 2401.10241, section 2.1, with F = B = W."""
    ratio = bubble_to_work(_times("zb-h1", 8, 1, 32, 1.0))[0] / \
        bubble_to_work(_times("1f1b", 8, 1, 32))[0]
    assert ratio == pytest.approx(1 / 3)


def test_one_rank_has_no_bubble():
    assert bubble_fraction(_times("1f1b", 1, 1, 3))[0] == 0.0


@pytest.mark.parametrize("pp", [4, 8])
def test_schedules_rank_as_published(pp):
    """More memory or more chunks, less bubble: 1F1B > ZB-H1 > ZB-2p, 1F1B > interleaved."""
    plain, interleaved, h1, twice = (
        bubble_fraction(_times(*arguments))[0] for arguments in (
            ("1f1b", pp, 1, 24), ("interleaved-1f1b", pp, 3, 24), ("zb-h1", pp, 1, 24, 0.9),
            ("zb-2p", pp, 1, 24, 0.9)))
    assert plain > h1 > twice
    assert plain > interleaved
