import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from predictor.training.residual_regressor import ResidualRegressor


LEAF_MEDIANS = {
    "check_sample_weight_equivalence_on_dense_data":
        "XGBoost sets a leaf to a weighted median, which repeated rows do not move the same way"}


@parametrize_with_checks(
    [ResidualRegressor(n_estimators=20, max_leaves=16, min_child_weight=1.0, subsample=1.0,
                       colsample_bytree=1.0, n_jobs=1)],
    expected_failed_checks=lambda _: LEAF_MEDIANS)
def test_keeps_scikit_learns_contract(estimator, check) -> None:
    check(estimator)


def table(rows: int = 400) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).uniform(0, 4, (rows, 2)).astype(np.float32)
    return x, np.sin(x[:, 0].astype(float))


def test_learns_a_curve() -> None:
    x, y = table()
    found = ResidualRegressor(n_jobs=1, n_estimators=150).fit(x, y).predict(x)
    assert np.abs(found - y).mean() < 0.05


def test_fades_to_the_median_far_from_the_data() -> None:
    x, y = table()
    model = ResidualRegressor(n_jobs=1).fit(x, y)
    far = model.predict(np.array([[40.0, 1.0]]))
    assert far[0] == pytest.approx(np.median(y), abs=1e-3)


def test_a_constraint_holds_everywhere() -> None:
    x, y = table()
    model = ResidualRegressor(n_jobs=1, increasing=(0,)).fit(x, y)
    line = np.column_stack([np.linspace(0, 4, 200), np.full(200, 2.0)])
    assert (np.diff(model.predict(line)) >= -1e-7).all()
