"""The learner: boosted trees for the log of measured over analytic time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from predictor.lowering.tables import Floats
from predictor.timing.residual import LARGEST, shrunk

if TYPE_CHECKING:
    from sklearn.utils import Tags
    from xgboost import Booster


HUBER_SLOPE = 0.1
"""Log ratio from which the pseudo-Huber error grows like an absolute one."""


class ResidualRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Boosted trees that minimise the absolute error of a log ratio, which is a relative error.

    Follows scikit-learn's contract. Blank features are allowed and mean unknown. Trees are flat
    outside the data, so predictions there shrink towards the median of what was seen.

    Parameters
    ----------
    n_estimators, max_leaves, learning_rate, min_child_weight, subsample, colsample_bytree, max_bin
        As in XGBoost; trees grow leaf by leaf.
    increasing, decreasing
        Columns whose growth can only slow the operation down, or only speed it up: by number. The
        loss is then the pseudo-Huber error, which keeps the constraints.
    shrink
        Whether predictions outside the domain move towards the median.
    random_state
        Seed of the sampling.
    n_jobs
        Threads, all cores when not given.

    Attributes
    ----------
    booster_ : xgboost.Booster
    low_, high_ : arrays of shape (features,)
        The domain: least and largest finite value of each column; without bounds where it had
        none.
    centre_ : float
        Median of the log ratios that were learned.
    """

    def __init__(
        self, *, n_estimators: int = 200, max_leaves: int = 256, learning_rate: float = 0.15,
        min_child_weight: float = 5.0, subsample: float = 0.8, colsample_bytree: float = 0.6,
        max_bin: int = 512, increasing: tuple[int, ...] = (), decreasing: tuple[int, ...] = (),
        shrink: bool = True, random_state: int | None = 0, n_jobs: int | None = None,
    ) -> None:
        self.n_estimators = n_estimators
        self.max_leaves = max_leaves
        self.learning_rate = learning_rate
        self.min_child_weight = min_child_weight
        self.subsample = subsample
        self.colsample_bytree = colsample_bytree
        self.max_bin = max_bin
        self.increasing = increasing
        self.decreasing = decreasing
        self.shrink = shrink
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Learn ``y`` of shape (rows,) from ``X`` of shape (rows, features)."""
        import xgboost

        X, y = validate_data(self, X, y, dtype=np.float32,  # noqa: N806
                             ensure_all_finite="allow-nan", y_numeric=True)
        weight = None if sample_weight is None else _check_sample_weight(
            sample_weight, X, dtype=np.float64, ensure_non_negative=True,
            allow_all_zero_weights=False)
        data = xgboost.QuantileDMatrix(X, y, weight=weight, max_bin=self.max_bin,
                                       nthread=self.n_jobs or 0)
        self.booster_: Booster = xgboost.train(
            dict(self._params(X.shape[1])), data, num_boost_round=self.n_estimators)
        self.low_, self.high_ = domain(X)
        self.centre_ = float(np.median(y))
        return self

    def predict(self, X: Any) -> Floats:  # noqa: N803
        """Return the log ratios of the rows of ``X``, shape (rows,)."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float32, ensure_all_finite="allow-nan",  # noqa: N806
                          reset=False)
        found = np.asarray(self.booster_.inplace_predict(X), dtype=np.float64)
        return shrunk(found, X, self.low_, self.high_, self.centre_) if self.shrink else found

    def _params(self, features: int) -> Mapping[str, Any]:
        constraints = np.zeros(features, dtype=int)
        constraints[list(self.increasing)] = 1
        constraints[list(self.decreasing)] = -1
        # XGBoost sets the leaves of an absolute error to medians after a tree has grown, and
        # constraints are lost in that; the pseudo-Huber error is smooth and needs no such step.
        loss = {"objective": "reg:pseudohubererror", "huber_slope": HUBER_SLOPE} \
            if constraints.any() else {"objective": "reg:absoluteerror"}
        return {
            **loss, "tree_method": "hist", "grow_policy": "lossguide",
            "max_depth": 0, "max_leaves": self.max_leaves, "learning_rate": self.learning_rate,
            "min_child_weight": self.min_child_weight, "subsample": self.subsample,
            "colsample_bytree": self.colsample_bytree, "max_bin": self.max_bin,
            "monotone_constraints": tuple(constraints.tolist()), "seed": self.random_state or 0,
            "nthread": self.n_jobs or 0, "verbosity": 0}

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def domain(matrix: Any) -> tuple[Floats, Floats]:
    """Return the least and the largest value of each column, no bounds where all are blank."""
    known = np.isfinite(matrix)
    low = np.where(known, matrix, np.inf).min(axis=0)
    high = np.where(known, matrix, -np.inf).max(axis=0)
    none = ~known.any(axis=0)
    return (np.where(none, -LARGEST, low).astype(np.float64),
            np.where(none, LARGEST, high).astype(np.float64))
