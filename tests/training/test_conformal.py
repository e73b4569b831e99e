import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mapie.regression import SplitConformalRegressor
from sklearn.dummy import DummyRegressor

from predictor.training.conformal import (
    FEWEST, LEVELS, conformal_widths, covered, grouped_widths, new_key_widths,
)

NINETY = LEVELS.tolist().index(0.9)


def test_the_width_is_the_ceiling_rank_of_the_errors() -> None:
    errors = np.arange(1.0, 20.0)  # 19 of them: rank ceil(20 x 0.9) = 18
    assert conformal_widths(errors)[NINETY] == 18.0


def test_too_few_errors_give_no_width() -> None:
    assert np.isnan(conformal_widths(np.ones(5))[NINETY])


@settings(max_examples=20)
@given(seed=st.integers(0, 2**31), scale=st.floats(0.01, 3.0))
def test_new_rows_are_covered_as_often_as_promised(seed: int, scale: float) -> None:
    drawn = np.random.default_rng(seed).standard_cauchy(8000) * scale
    width = conformal_widths(drawn[:4000])[NINETY]
    assert covered(drawn[4000:], np.full(4000, width)) == pytest.approx(0.9, abs=0.03)


def test_groups_have_widths_of_their_own() -> None:
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1], 2 * FEWEST)
    errors = rng.normal(size=4 * FEWEST) * np.where(group == 0, 0.1, 1.0)
    found = grouped_widths(errors, group, 2)[:, NINETY]
    assert found[1] > 5 * found[0]


def test_a_small_group_is_never_narrower_than_all_rows_together() -> None:
    rng = np.random.default_rng(0)
    group = np.concatenate([np.zeros(1000, dtype=int), np.ones(30, dtype=int)])
    errors = np.where(group == 0, rng.normal(size=1030), 1e-6)
    found = grouped_widths(errors, group, 2)[:, NINETY]
    assert found[1] >= 0.95 * found[0]


def test_widths_rise_with_the_level() -> None:
    found = grouped_widths(np.random.default_rng(1).normal(size=500), np.zeros(500, dtype=int), 1)
    assert (np.diff(found[0]) >= 0).all()


def test_agrees_with_mapie() -> None:
    rng = np.random.default_rng(3)
    y = rng.normal(size=999)
    x = np.zeros((999, 1))
    theirs = SplitConformalRegressor(
        DummyRegressor(strategy="constant", constant=0.0).fit(x, y), confidence_level=0.9,
        prefit=True).conformalize(x, y)
    _, interval = theirs.predict_interval(x[:1])
    ours = conformal_widths(y)[NINETY]
    assert float(np.ravel(interval)[1]) == pytest.approx(ours, rel=1e-9)


def test_a_new_key_is_as_wrong_as_the_worse_of_those_held_out() -> None:
    rng = np.random.default_rng(0)
    keys = np.repeat(np.arange(60), 100)
    shift = rng.normal(0, 0.3, 60)[keys]
    errors = shift + rng.normal(0, 0.02, len(keys))
    one = np.zeros(len(keys), dtype=int)
    width = new_key_widths(errors, one, 1, keys)[0, NINETY]
    fresh = rng.normal(0, 0.3, 500) + rng.normal(0, 0.02, 500)
    assert covered(fresh, np.full(500, width)) > 0.85
    assert width >= np.quantile(np.abs(errors), 0.9)


def test_a_group_on_one_key_takes_the_widths_of_all() -> None:
    keys = np.array(["a"] * 50 + ["b"] * 50 + ["a"] * 50)
    group = np.repeat([0, 0, 1], 50)
    errors = np.where(group == 0, 0.5, 0.01)
    found = new_key_widths(errors, group, 2, keys)
    assert found[1, NINETY] == found[0, NINETY] == 0.5
