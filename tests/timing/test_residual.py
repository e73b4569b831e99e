"""Residuals fade away from the training domain, and widths are known or NaN."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.spec.errors import InputError
from predictor.timing.residual import (
    MARGIN,
    SAME_DEVICE,
    UNKNOWN_GROUP,
    ResidualModel,
    beyond,
    on_known_device,
    shrunk,
)


class FirstColumn:
    """A regressor that answers with the first feature, 0 where it is missing."""

    def predict(self, x):
        return np.nan_to_num(x[:, 0].astype(np.float64), nan=0.0)


MODEL = ResidualModel(
    name="gemm", features=("a", "b", "constant"), regressor=FirstColumn(),
    low=np.array([0.0, -2.0, 1.0]), high=np.array([10.0, 2.0, 1.0]), groups=("fwd", "bwd"),
    centre=np.array([1.0, -1.0]), levels=np.array([0.5, 0.9, 0.99]),
    widths=np.array([[[0.1, 0.2, 0.5], [0.2, 0.4, np.nan]],
                     [[0.3, 0.6, 0.9], [np.nan, np.nan, np.nan]]]))


def answer(*row, group=0):
    found = MODEL.predict(np.array([row], np.float32), np.array([group]))
    return float(found.log_ratio[0]), bool(found.outside[0])


@given(a=st.floats(0, 10, width=32), b=st.floats(-2, 2, width=32), group=st.sampled_from([0, 1]))
def test_inside_the_regressor_answers(a, b, group):
    assert answer(a, b, 1, group=group) == (pytest.approx(a), False)


def test_within_the_margin_is_inside():
    assert answer(10.4, 2.1, 1) == (pytest.approx(10.4), False)


@pytest.mark.parametrize(("row", "distance"), [
    ((20, 0, 1), 1 - MARGIN), ((-10, 0, 1), 1 - MARGIN), ((5, 6, 1), 1 - MARGIN),
    ((20, 10, 1), 2 - MARGIN),  # the worst feature counts
    ((5, 0, 2), 1 - MARGIN),  # a feature that never varied counts in ones
])
def test_outside_the_answer_fades_to_the_groups_centre(row, distance):
    for group, centre in enumerate(MODEL.centre):
        expected = centre + (row[0] - centre) * np.exp(-distance)
        assert answer(*row, group=group) == (pytest.approx(expected), True)


def test_the_fading_starts_without_a_jump():
    edge = 10 * (1 + MARGIN)
    inside, outside = answer(edge - 1e-3, 0, 1), answer(edge + 1e-3, 0, 1)
    assert (inside[1], outside[1]) == (False, True)
    assert outside[0] == pytest.approx(inside[0], abs=0.01)


@pytest.mark.parametrize("far", [np.inf, -np.inf, 3e38])
def test_infinitely_far_is_the_centre(far):
    assert answer(5, far, 1) == (1.0, True)


def test_a_missing_feature_is_not_outside():
    assert answer(4, np.nan, 1) == (4.0, False)


def test_a_kernel_of_no_group_keeps_its_analytic_time():
    assert answer(4, 0, 1, group=UNKNOWN_GROUP) == (0.0, True)
    assert np.isnan(width(UNKNOWN_GROUP, False, 0.5))


def width(group, outside, level):
    return float(MODEL.half_width(np.array([group]), np.array([outside]), level)[0])


@pytest.mark.parametrize(("group", "outside", "level", "expected"), [
    (0, False, 0.5, 0.1), (0, False, 0.9, 0.2), (0, False, 0.99, 0.5), (0, False, 0.7, 0.15),
    (0, False, 0.945, 0.35), (0, True, 0.9, 0.4), (1, False, 0.5, 0.3),
])
def test_widths_between_levels_are_linear(group, outside, level, expected):
    assert width(group, outside, level) == pytest.approx(expected)


@pytest.mark.parametrize(("group", "outside", "level"), [
    (1, True, 0.5), (1, True, 0.7),  # not calibrated
    (0, True, 0.95), (0, True, 0.99),  # the upper level is not
    (0, False, 0.4), (0, False, 0.995),  # beyond all levels
])
def test_unknown_widths_are_nan(group, outside, level):
    assert np.isnan(width(group, outside, level))


A100 = (19.5, 40.0)
H100 = (67.0, 50.0)
DEVICES = np.array([A100, H100], np.float32)


def with_devices(devices=DEVICES, columns=("b", "constant")):
    """The model with a domain that holds both GPUs."""
    return dataclasses.replace(MODEL, low=np.zeros(3), high=np.full(3, 99.0),
                               device_columns=columns, devices=devices)


@pytest.mark.parametrize(("figures", "outside"), [
    (A100, False), (H100, False),
    ((19.5 * (1 + SAME_DEVICE / 2), 40 * (1 - SAME_DEVICE / 2)), False),  # rounding
    ((19.5 * (1 + 2 * SAME_DEVICE), 40), True), ((19.5, 40 * (1 - 2 * SAME_DEVICE)), True),
    ((19.5, 50), True),  # each figure of another GPU
    ((40, 45), True),  # between both
    ((np.nan, 40), True), ((19.5, np.nan), True),
])
def test_a_gpu_that_nobody_measured_is_outside_but_does_not_fade(figures, outside):
    x = np.array([(7, *figures)], np.float32)
    found = with_devices().predict(x, np.array([0]))
    assert (found.outside[0], found.log_ratio[0]) == (outside, 7.0)


def test_device_columns_may_lie_in_any_order():
    x = np.array([(7, *A100), (7, *A100[::-1])], np.float32)
    turned = with_devices(np.ascontiguousarray(DEVICES[:, ::-1]), ("constant", "b"))
    assert turned.predict(x, np.zeros(2, np.int64)).outside.tolist() == [False, True]


def test_a_figure_that_training_missed_may_be_missing():
    model = with_devices(np.array([[19.5, np.nan]], np.float32))
    x = np.array([(7, 19.5, np.nan), (7, 19.5, 40), (7, np.nan, np.nan)], np.float32)
    assert model.predict(x, np.zeros(3, np.int64)).outside.tolist() == [False, True, True]


def test_a_figure_of_zero_is_only_zero():
    x = np.array([[0.0], [-0.0], [1e-30], [np.inf]], np.float32)
    assert on_known_device(x, np.zeros((1, 1), np.float32)).tolist() == [True, True, False, False]


@given(st.lists(st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from([4, 5, 6])), max_size=20),
       st.sets(st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from([4, 5, 6])), max_size=5))
def test_rows_are_known_when_their_figures_are_together(rows, devices):
    found = on_known_device(np.array(rows, np.float32).reshape(-1, 2),
                            np.array(sorted(devices), np.float32).reshape(-1, 2))
    assert found.tolist() == [row in devices for row in rows]


@pytest.mark.parametrize(("devices", "columns", "word"), [
    (DEVICES, ("b",), r"devices has the shape \(2, 2\), not \(devices, 1\)"),
    (DEVICES[:, 0], ("b",), r"devices has the shape \(2,\)"),
    (DEVICES, ("b", "colour"), "device column 'colour' is no feature"),
    (DEVICES, ("b", "b"), "one of the device columns comes twice"),
    (DEVICES.astype(np.float64), ("a", "b"), "devices are float64"),
    (np.full((1, 1), np.inf, np.float32), ("b",), "devices is not finite"),
    (DEVICES[:0], ("a", "b"), "there are 0 devices for 2 device columns"),
    (np.zeros((1001, 1), np.float32), ("b",), "there are 1001 devices"),
])
def test_devices_that_do_not_fit_are_refused(devices, columns, word):
    with pytest.raises(InputError, match=word):
        with_devices(devices, columns)


def test_beyond_is_the_worst_feature_in_ranges_less_the_margin():
    x = np.array([[5, 0, 1], [10.5, 0, 1], [20, 4, 1], [5, -6, 1], [np.nan, 0, 2],
                  [np.nan, np.nan, np.nan]], np.float32)
    np.testing.assert_allclose(beyond(x, MODEL.low, MODEL.high),
                               [0, 0, 1 - MARGIN, 1 - MARGIN, 1 - MARGIN, 0], atol=1e-7)


@pytest.mark.parametrize("centre", [1.0, np.array([1.0, 1.0, 1.0])])
def test_shrunk_is_what_a_model_answers(centre):
    x = np.array([[5, 0, 1], [20, 0, 1], [5, np.inf, 1]], np.float32)
    found = shrunk(x[:, 0].astype(np.float64), x, MODEL.low, MODEL.high, centre)
    np.testing.assert_allclose(found, [5, 1 + 19 * np.exp(MARGIN - 1), 1])
    np.testing.assert_allclose(found, MODEL.predict(x, np.zeros(3, np.int64)).log_ratio)


def test_no_rows_give_no_answers():
    found = MODEL.predict(np.zeros((0, 3), np.float32), np.zeros(0, np.int64))
    assert found.log_ratio.shape == found.outside.shape == (0,)


@pytest.mark.parametrize(("shape", "group"), [
    ((2, 2), [0, 0]), ((3,), [0]), ((2, 3), [0]), ((1, 3), [2]), ((1, 3), [-2]),
])
def test_rows_that_do_not_fit_are_refused(shape, group):
    with pytest.raises(InputError, match="residual-model"):
        MODEL.predict(np.zeros(shape, np.float32), np.array(group))


@pytest.mark.parametrize("level", [0.0, 1.0, 90.0, float("nan")])
def test_levels_that_are_no_share_are_refused(level):
    with pytest.raises(InputError, match="not between 0 and 1"):
        width(0, False, level)


@pytest.mark.parametrize(("changes", "word"), [
    ({"low": np.zeros(2)}, r"low has the shape \(2,\), not \(3,\)"),
    ({"centre": np.zeros(3)}, "centre has the shape"),
    ({"widths": np.zeros((2, 3))}, "widths has the shape"),
    ({"features": ()}, "there are no features"),
    ({"features": ("a", "a", "b")}, "one of the features comes twice"),
    ({"groups": ("x", "x")}, "one of the groups comes twice"),
    ({"high": np.array([1, np.inf, 2])}, "high is not finite"),
    ({"low": np.full(3, 99.0)}, "low is above high"),
    ({"levels": np.array([0.5, 0.5, 0.6])}, "levels do not rise"),
    ({"levels": np.array([0.5, 0.9, 1.0])}, "levels do not rise"),
    ({"widths": np.full((2, 2, 3), -0.1)}, "a width is negative"),
    ({"widths": np.full((2, 2, 3), np.inf)}, "a width is negative or infinite"),
])
def test_models_that_disagree_with_themselves_are_refused(changes, word):
    with pytest.raises(InputError, match=word):
        dataclasses.replace(MODEL, **changes)


def test_all_problems_of_a_model_come_at_once():
    with pytest.raises(InputError) as caught:
        dataclasses.replace(MODEL, low=np.full(3, 99.0), groups=("x", "x"))
    assert len(caught.value.problems) == 2
