"""Scores computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.training.metrics import (
    Candidate,
    errors,
    interval_scores,
    kendall_tau,
    merge_identical,
    ranking,
    score_group,
    top1_regret,
)

NAN, INF = math.nan, math.inf


def group(*pairs, **more):
    return [Candidate(measured, predicted, **more) for measured, predicted in pairs]


def test_errors_are_in_percent():
    found = errors(np.array([1.0, 2.0, 4.0, NAN, 5.0]), np.array([1.1, 1.0, 4.0, 3.0, NAN]))
    assert found.rows == 3
    assert found.mape == pytest.approx((10 + 50 + 0) / 3)
    assert found.median_ape == pytest.approx(10)
    assert found.bias == pytest.approx(100 * ((1.1 + 0.5 + 1.0) / 3 - 1))
    assert found.max_ape == pytest.approx(50)


def test_no_rows_have_no_error():
    assert errors(np.array([NAN]), np.array([1.0])).as_dict() == {
        "rows": 0, "mape": None, "median_ape": None, "bias": None, "max_ape": None}


def test_intervals():
    coverage, half = interval_scores(
        np.array([1.0, 2.0, 3.0]), np.array([0.5, 2.5, NAN]), np.array([1.5, 3.5, NAN]),
        np.array([1.0, 2.5, 3.0]))
    assert coverage == pytest.approx(50)
    assert half == pytest.approx(100 * (0.5 / 1 + 0.5 / 2.5) / 2)
    assert interval_scores(*np.full((4, 2), NAN)) == (None, None)


def test_tau_drops_measured_ties_and_counts_predicted_ones():
    # Pairs: (1, 1.02) is a tie; (1, 2) concordant; (1.02, 2) predicted equal.
    assert kendall_tau(np.array([1.0, 1.02, 2.0]), np.array([1.0, 3.0, 3.0])) == pytest.approx(0.5)
    assert kendall_tau(np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0])) == -1
    assert kendall_tau(np.array([1.0, 1.01]), np.array([1.0, 2.0])) is None


def test_a_pair_three_percent_of_the_smaller_apart_counts():
    assert kendall_tau(np.array([100.0, 103.0]), np.array([1.0, 2.0])) == 1
    assert kendall_tau(np.array([100.0, 102.9]), np.array([1.0, 2.0])) is None


def test_refused_strategies_are_predicted_last():
    assert kendall_tau(np.array([1.0, 2.0, 3.0]), np.array([INF, 2.0, 3.0])) == pytest.approx(-1/3)
    assert top1_regret(group((1.0, INF), (2.0, 5.0))) == pytest.approx(1.0)


def test_regret_of_the_first_choice():
    assert top1_regret(group((2.0, 1.0), (1.6, 1.5))) == pytest.approx(0.25)
    assert top1_regret(group((2.0, 1.9), (1.6, 1.5))) == 0


def test_tied_first_choices_average():
    assert top1_regret(group((1.0, 1.0), (2.0, 1.0), (9.0, 3.0))) == pytest.approx(0.5)


def test_out_of_memory_chosen_first_is_full_regret():
    assert top1_regret([*group((1.0, 2.0)), Candidate(NAN, 1.0, out_of_memory=True)]) == 1


def test_what_is_predicted_not_to_fit_cannot_be_chosen():
    best = Candidate(1.0, 1.0, choosable=False)
    assert top1_regret([best, *group((1.5, 2.0))]) == pytest.approx(0.5)
    assert top1_regret([Candidate(NAN, 1.0, out_of_memory=True, choosable=False),
                        *group((1.5, 2.0))]) == 0
    assert top1_regret([best]) == 1


def test_identical_strategies_are_averaged():
    merged = merge_identical(["a", "b", "a"], group((1.0, 4.0), (2.0, 5.0), (3.0, 4.0)))
    assert merged == group((2.0, 4.0), (2.0, 5.0))


def test_out_of_memory_only_when_all_repeats_were():
    oom = Candidate(NAN, 1.0, out_of_memory=True)
    assert merge_identical("aa", [oom, oom])[0].out_of_memory
    assert merge_identical("aa", [oom, *group((2.0, 1.0))]) == group((2.0, 1.0))


def test_untimed_strategies_count_for_nothing():
    untimed = Candidate(NAN, 0.1)
    score = score_group([untimed, *group((1.0, 1.0), (2.0, 2.0))])
    assert (score.tau, score.regret) == (1, 0)


def test_groups_need_three_timed_strategies_and_a_pair():
    wide, narrow = group((1, 1), (2, 2), (3, 1.5)), group((1, 1), (2, 2))
    ties = group((1.0, 1), (1.01, 2), (1.02, 3))
    found = ranking([wide, narrow, ties, [*narrow, Candidate(NAN, 1, out_of_memory=True)]])
    assert (found.groups, found.groups_without_pairs) == (1, 1)
    assert found.kendall_tau_mean == pytest.approx(1 / 3)
    assert found.top1_regret_mean == found.top1_regret_max == 0
    assert ranking([]).kendall_tau_mean is None


@given(st.lists(st.floats(0.1, 100), min_size=2, max_size=12))
def test_a_perfect_prediction_orders_perfectly(times):
    measured = np.array(times)
    assert kendall_tau(measured, measured) in (1.0, None)
    assert top1_regret(group(*zip(times, times, strict=True))) == 0


@given(st.lists(st.tuples(st.floats(0.1, 100), st.floats(0.1, 100)), min_size=2, max_size=12),
       st.integers(-3, 3))
def test_scale_of_a_prediction_does_not_change_the_order(pairs, power):
    measured, predicted = np.array(pairs).T
    before = kendall_tau(measured, predicted)
    # Powers of two scale without rounding.
    assert before == kendall_tau(measured, predicted * 2.0**power)
    assert before is None or -1 <= before <= 1
