"""Activations in flight follow from the order and match the published counts."""

from __future__ import annotations

import time

import numpy as np
import pytest

from predictor.pipeline.in_flight import activations_in_flight, held_at_peak
from predictor.pipeline.registry import SCHEDULES
from predictor.pipeline.schedule import Work


@pytest.mark.parametrize(("pp", "count"), [(1, 5), (4, 2), (4, 4), (4, 64), (7, 9)])
def test_1f1b_keeps_what_is_ahead(pp, count):
    """Rank r keeps min(m, p - r)."""
    expected = [[min(count, pp - rank)] for rank in range(pp)]
    np.testing.assert_array_equal(activations_in_flight("1f1b", pp, 1, count), expected)


@pytest.mark.parametrize("count", [1, 5, 300])
def test_gpipe_keeps_every_micro_batch(count):
    np.testing.assert_array_equal(activations_in_flight("gpipe", 3, 1, count), [[count]] * 3)


@pytest.mark.parametrize(("pp", "vpp", "count"), [(4, 2, 8), (4, 3, 4), (2, 4, 16), (8, 2, 64)])
def test_interleaved_keeps_its_warm_up(pp, vpp, count):
    """Megatron-Core schedules.py: 2 (p - r - 1) + (v - 1) p forwards ahead, and the next one."""
    held = activations_in_flight("interleaved-1f1b", pp, vpp, count).sum(axis=1)
    ahead = [(vpp - 1) * pp + 2 * (pp - rank - 1) + 1 for rank in range(pp)]
    np.testing.assert_array_equal(held, np.minimum(count * vpp, ahead))


def test_interleaved_chunks_fill_in_turn():
    """pp 4, vpp 3: 15 forwards are 4 of each chunk, then 3 more of the first."""
    np.testing.assert_array_equal(activations_in_flight("interleaved-1f1b", 4, 3, 8)[0], [7, 4, 4])


@pytest.mark.parametrize("name", ["zb-h1", "zb-1p"])
def test_zb_h1_keeps_what_the_first_rank_of_1f1b_keeps(name):
    """Qi et al. 2024, arXiv 2401.10241, section 2.1: no worker exceeds 1F1B's peak."""
    np.testing.assert_array_equal(activations_in_flight(name, 6, 1, 30), [[6]] * 6)


def test_zb_2p_keeps_almost_twice_as_many():
    """Qi et al. 2024, arXiv 2401.10241, section 2.2: 2p - 1."""
    np.testing.assert_array_equal(activations_in_flight("zb-2p", 6, 1, 30), [[11]] * 6)


@pytest.mark.parametrize(("name", "vpp"), [
    *[(name, 1) for name in SCHEDULES], ("interleaved-1f1b", 2), ("gpipe", 2)])
@pytest.mark.parametrize("count", [7, 12, 40, 41])
def test_long_steps_keep_what_short_ones_do(name, count, vpp):
    releases = Work.W if SCHEDULES[name].splits_weight else Work.B
    whole = held_at_peak(SCHEDULES[name](4, vpp, count), vpp, releases)
    np.testing.assert_array_equal(activations_in_flight(name, 4, vpp, count), whole)


def test_callers_cannot_change_the_shared_array():
    with pytest.raises(ValueError, match="read-only"):
        activations_in_flight("1f1b", 4, 1, 8)[0, 0] = 0


def test_asking_again_is_free():
    activations_in_flight("1f1b", 8, 1, 64)
    started = time.perf_counter()
    for count in range(100, 1100):
        activations_in_flight("1f1b", 8, 1, count)
    assert time.perf_counter() - started < 0.3
