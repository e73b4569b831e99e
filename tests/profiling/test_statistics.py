"""The median's interval, by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.profiling.statistics import median_interval, median_ranks


def test_five_samples_cannot_reach_95_percent():
    """All five above the median, or all below: 2 / 2^5 = 6.25 % > 5 %."""
    assert median_interval([3.0, 1.0, 2.0, 5.0, 4.0]) == (3.0, 0.0, math.inf)


def test_six_samples_are_bounded_by_their_extremes():
    """2 / 2^6 = 3.1 % <= 5 %."""
    assert median_interval([6.0, 1.0, 2.0, 5.0, 4.0, 3.0]) == (3.5, 1.0, 6.0)


def test_ranks_match_the_published_table():
    """Conover, Practical Nonparametric Statistics: n = 20 gives the 6th and the 15th."""
    assert median_ranks(20) == (5, 14)


@given(st.lists(st.floats(1e-6, 1e3), min_size=6, max_size=60))
def test_the_interval_holds_the_median(samples):
    middle, low, high = median_interval(samples)
    assert low <= middle <= high
    assert middle == pytest.approx(np.median(samples))


def test_the_interval_covers_the_true_median_95_times_of_100():
    rng = np.random.default_rng(0)
    drawn = rng.lognormal(0.0, 0.5, (2000, 31))
    inside = [low <= 1.0 <= high for _, low, high in map(median_interval, drawn.tolist())]
    assert np.mean(inside) > 0.94
