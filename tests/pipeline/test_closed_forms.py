"""Every formula equals the simulator in its domain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.pipeline import closed_forms
from predictor.pipeline.batched import pipeline_times
from predictor.pipeline.simulator import simulated

SECONDS = st.floats(0.1, 10)
RANKS = st.integers(2, 6)


def _simulated(name, pp, vpp, count, work_s, link_s=0.0, *, blocking=False):
    return simulated(name, pp, vpp, count, np.tile(work_s, (pp * vpp, 1)), link_s,
                     blocking=blocking).makespan_s


@given(pp=st.integers(1, 6), count=st.integers(1, 20), forward=SECONDS, backward=SECONDS)
def test_1f1b_and_gpipe_without_links(pp, count, forward, backward):
    formula = closed_forms.one_f_one_b_s(pp, count, forward, backward)
    for name in ("1f1b", "gpipe"):
        assert formula == pytest.approx(
            _simulated(name, pp, 1, count, [forward, backward, 0]), rel=1e-9)


@given(pp=RANKS, count=st.integers(1, 20), forward=SECONDS, backward=SECONDS,
       part=st.floats(0, 1))
def test_1f1b_with_links(pp, count, forward, backward, part):
    link_s = part * min(forward, backward)
    work_s = [forward, backward, 0]
    assert closed_forms.one_f_one_b_linked_s(pp, count, forward, backward, link_s) == \
        pytest.approx(_simulated("1f1b", pp, 1, count, work_s, link_s), rel=1e-9)
    assert closed_forms.one_f_one_b_blocking_s(pp, count, forward, backward, link_s) == \
        pytest.approx(_simulated("1f1b", pp, 1, count, work_s, link_s, blocking=True), rel=1e-9)


@given(pp=RANKS, vpp=st.integers(1, 4), extra=st.integers(0, 12), forward=SECONDS,
       backward=SECONDS)
def test_interleaved_without_links(pp, vpp, extra, forward, backward):
    count = pp + extra
    assert closed_forms.interleaved_s(pp, vpp, count, forward, backward) == pytest.approx(
        _simulated("interleaved-1f1b", pp, vpp, count, [forward, backward, 0]), rel=1e-9)


@given(pp=RANKS, extra=st.integers(0, 12), forward=SECONDS, backward=SECONDS, part=st.floats(0, 1))
def test_zb_h1_without_links(pp, extra, forward, backward, part):
    weight = part * min(forward, backward)
    count = pp + extra
    assert closed_forms.zb_h1_s(pp, count, forward, backward, weight) == pytest.approx(
        _simulated("zb-h1", pp, 1, count, [forward, backward, weight]), rel=1e-9)


@given(pp=st.integers(1, 6), count=st.integers(1, 20), seed=st.integers(0, 2**32 - 1),
       blocking=st.booleans())
def test_gpipe_with_unequal_stages_and_links(pp, count, seed, blocking):
    random = np.random.default_rng(seed)
    work_s = random.uniform(0.1, 2, (pp, 3)) * [1, 1, 0]
    link_s = float(random.uniform(0, 1))
    start_s, end_s = closed_forms.gpipe_rank_s(
        np.array([count]), work_s[None, :, 0], work_s[None, :, 1], np.array([link_s]),
        np.array([blocking]))
    timeline = simulated("gpipe", pp, 1, count, work_s, link_s, blocking=blocking)
    np.testing.assert_allclose(start_s[0], timeline.start_s[:, 0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(end_s[0], timeline.end_s[:, -1], rtol=1e-9)


def test_links_are_paid_in_the_steady_state():
    """p 8, m 64, hop a tenth of F: counting each hop once at the ends misses 5 %."""
    usual = closed_forms.one_f_one_b_s(8, 64, 1, 2) + 2 * 7 * 0.1
    real = _simulated("1f1b", 8, 1, 64, [1, 2, 0], 0.1)
    assert real / usual - 1 == pytest.approx(0.05, abs=0.005)


def test_each_micro_batch_pays_about_two_hops():
    per_microbatch = (_simulated("1f1b", 8, 1, 96, [1, 2, 0], 0.1)
                      - _simulated("1f1b", 8, 1, 64, [1, 2, 0], 0.1)) / 32
    assert per_microbatch == pytest.approx(3 + 2 * 0.1 * 7 / 8)


def test_interleaving_hides_links_in_its_longer_warm_up():
    """The steady state of an interleaved pipeline pays no hop that is shorter than a chunk."""
    per_microbatch = (_simulated("interleaved-1f1b", 4, 2, 32, [1, 2, 0], 0.1)
                      - _simulated("interleaved-1f1b", 4, 2, 16, [1, 2, 0], 0.1)) / 16
    assert per_microbatch == pytest.approx(2 * 3)


@pytest.mark.parametrize("weight", [1.0, 0.8, 0.5])
def test_zb_h2_waits_for_what_the_paper_says(weight):
    """Qi et al. 2024, arXiv 2401.10241, table 2: a rank idles (p - 1)(F + B - 2W) between its
    first and last pass."""
    ones = np.ones((1, 8))
    times = pipeline_times("zb-2p", 8, 1, np.array([32]), ones, ones, weight * ones, np.zeros(1),
                           np.zeros(1, bool))
    idle = times.end_s - times.start_s - times.busy_s
    assert idle.max() == pytest.approx(7 * (2 - 2 * weight), abs=1e-9)
