"""Flat trees and boosters say the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from predictor.bundle.packing import LEAF_STEP, compressed, packed, unpacked
from predictor.bundle.trees import ROWS_BY_FOREST, BoostedTrees, forest_of, slim
from predictor.spec.errors import InputError
from predictor.timing.forest import DTYPES, LEAF

xgboost = pytest.importorskip("xgboost", reason="xgboost: boosters are trained here")
ROOT = Path(__file__).parents[2]
TRAININGS = [
    {"objective": "reg:absoluteerror"},
    {"objective": "reg:squarederror", "base_score": 2.5},
    {"objective": "reg:pseudohubererror", "max_depth": 2},
    {"objective": "reg:absoluteerror", "monotone_constraints": (1, 0, -1, 0)},
    {"objective": "reg:squarederror", "gamma": 5.0, "tree_method": "exact"},  # prunes nodes
    {"objective": "reg:squarederror", "grow_policy": "lossguide", "max_leaves": 20},
    {"objective": "reg:absoluteerror", "gamma": 1e9},  # only leaves
]


def packed_booster(booster):
    """What a bundle's reader hands over: the compressed file and the size of its content."""
    content = bytes(booster.save_raw("ubj"))
    return compressed(content), len(content)


def by_xgboost(booster, x):
    return booster.inplace_predict(x).astype(np.float64)


@pytest.mark.parametrize("params", TRAININGS, ids=str)
def test_forest_equals_booster_on_random_and_boundary_rows(trained, features, params):
    booster = trained(30, **params)
    forest = forest_of(booster)
    x = features(500, seed=1)
    np.testing.assert_allclose(forest.predict(x), by_xgboost(booster, x), atol=1e-5)
    edge = boundary_rows(forest, features(300, seed=2))
    np.testing.assert_allclose(forest.predict(edge), by_xgboost(booster, edge), atol=1e-5)


def boundary_rows(forest, x):
    """Rows whose features equal thresholds, lie one step beside them, are huge or missing."""
    chosen = np.random.default_rng(3)
    for column in range(x.shape[1]):
        at = forest.threshold[forest.feature == column]
        at = at if len(at) else np.zeros(1, np.float32)
        values = np.concatenate([at, np.nextafter(at, np.float32(-np.inf)),
                                 np.nextafter(at, np.float32(np.inf)),
                                 np.array([np.nan, 3e38, -3e38, 0.0, -0.0], np.float32)])
        x[:, column] = chosen.choice(values, len(x))
    return x


def test_boundary_rows_tell_less_from_less_or_equal(trained, features):
    """The rows above would notice a walk that sends equal values left."""
    forest = forest_of(trained())
    edge = boundary_rows(forest, features(300, seed=2))
    below = np.nextafter(edge, np.float32(-np.inf))
    assert np.abs(forest.predict(edge) - forest.predict(below)).max() > 0.01


def test_missing_values_go_their_own_way(trained, features):
    forest = forest_of(trained())
    inner = forest.feature != LEAF
    assert forest.missing_left[inner].any() and not forest.missing_left[inner].all()


@pytest.mark.parametrize("params", TRAININGS, ids=str)
def test_a_packed_forest_unpacks_to_itself(trained, params):
    forest = forest_of(trained(30, **params))
    again = unpacked(packed(forest), forest.base)
    assert again.base == forest.base
    for name, dtype in DTYPES.items():
        assert getattr(again, name).dtype == dtype
        np.testing.assert_array_equal(getattr(again, name), getattr(forest, name), err_msg=name)


def test_a_slim_booster_keeps_splits_and_rounds_leaves(trained):
    booster = trained(30, objective="reg:squarederror", gamma=5.0, tree_method="exact")
    full, less = forest_of(booster), forest_of(slim(booster))
    for name in ("root", "feature", "threshold", "left", "right", "missing_left"):
        np.testing.assert_array_equal(getattr(less, name), getattr(full, name), err_msg=name)
    steps = less.value / LEAF_STEP
    np.testing.assert_array_equal(steps, np.round(steps))
    assert 0 < np.abs(less.value - full.value).max() <= LEAF_STEP / 2
    assert less.base == full.base


@pytest.mark.parametrize(("params", "word"), [
    ({"booster": "dart", "objective": "reg:squarederror"}, "dart"),
    ({"objective": "reg:gamma"}, "reg:gamma"),
])
def test_a_booster_that_is_no_plain_sum_is_refused(features, params, word):
    x = features(200)
    y = np.exp(np.nan_to_num(x[:, 0]))
    booster = xgboost.train(params | {"nthread": 1}, xgboost.DMatrix(x, label=y), 2)
    with pytest.raises(InputError, match=word):
        forest_of(booster)


def test_several_outputs_are_refused(features):
    x = features(200)
    y = np.nan_to_num(x[:, :2])
    booster = xgboost.train({"nthread": 1}, xgboost.DMatrix(x, label=y), 2)
    with pytest.raises(InputError, match="several outputs"):
        forest_of(booster)


def test_categories_are_refused():
    x = np.arange(90, dtype=np.float32).reshape(-1, 1) % 3
    data = xgboost.DMatrix(x, label=np.array([5, 1, 7] * 30), feature_types=["c"],
                           enable_categorical=True)
    booster = xgboost.train({"nthread": 1, "max_cat_to_onehot": 1}, data, 2)
    with pytest.raises(InputError, match="categories"):
        forest_of(booster)


def test_few_and_many_rows_get_the_same_answers(trained, features):
    booster = trained()
    forest = forest_of(booster)
    trees = BoostedTrees(forest, 4, *packed_booster(booster))
    x = features(ROWS_BY_FOREST + 1)
    assert "_booster" not in vars(trees)
    many = trees.predict(x)
    assert "_booster" in vars(trees)  # XGBoost answered, not the forest
    few = trees.predict(x[:ROWS_BY_FOREST])
    np.testing.assert_allclose(many[:ROWS_BY_FOREST], few, atol=1e-5)


@pytest.mark.parametrize("harm", ["another booster", "no booster", "other features"])
def test_a_booster_unlike_the_flat_trees_is_refused(trained, features, harm):
    booster = trained()
    forest = forest_of(booster)
    content = packed_booster(trained(5) if harm == "another booster" else booster)
    if harm == "no booster":
        content = compressed(b"{"), 1
    trees = BoostedTrees(forest, 3 if harm == "other features" else 4, *content)
    with pytest.raises(InputError, match="bundle-booster"):
        trees.predict(features(ROWS_BY_FOREST + 1))


WITHOUT = """
import sys
sys.modules[sys.argv[2]] = None  # importing it raises ImportError
import numpy as np
from predictor.bundle import open_bundle
model = open_bundle(sys.argv[1]).models["gemm"]
x = np.zeros((6000, 4), np.float32)
print(repr(float(model.regressor.predict(x)[-1])))
"""


@pytest.mark.parametrize("module", ["xgboost", "lzma"])
def test_without_xgboost_the_forest_walks_any_number_of_rows(written, model, module):
    done = subprocess.run([sys.executable, "-c", WITHOUT, str(written), module], cwd=ROOT,
                          timeout=60, check=True, capture_output=True, text=True)
    expected = by_xgboost(model.booster, np.zeros((1, 4), np.float32))
    assert float(done.stdout) == pytest.approx(expected[0], abs=40 * LEAF_STEP / 2)
