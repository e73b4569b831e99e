"""Fits a learned model, scores it on groups it never saw and turns that into intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predictor.lowering.tables import Floats
from predictor.timing.collective_features import NETWORK_FEATURES
from predictor.timing.features import DEVICE_FEATURES, Matrix
from predictor.timing.residual import LARGEST
from predictor.training.conformal import grouped_widths, medians, new_key_widths
from predictor.training.learning_rows import LearningRows
from predictor.training.residual_regressor import ResidualRegressor

PARAMS: dict[str, dict[str, Any]] = {
    "gemm": {"n_estimators": 150, "max_leaves": 1600, "learning_rate": 0.15, "min_child_weight": 3},
    "attention": {"n_estimators": 120, "max_leaves": 256, "learning_rate": 0.15},
    "memory_bound": {"n_estimators": 120, "max_leaves": 256, "learning_rate": 0.15},
    "collectives": {"n_estimators": 120, "max_leaves": 256, "learning_rate": 0.1},
}
"""Settings by model: the best of a small grid within the size that the default bundle may have."""
HIDDEN_SHARE = 0.3
"""Share of the rows whose library, or shape beyond its size, is hidden while learning: a blank then
means what is usual rather than whatever tree branch blanks fall into."""
HIDDEN = (("software",), ("width", "rows", "rows_per_sm"))
"""Features that go blank together in predictions."""
FOLDS = {"shape": 4, "gpu": 6, "source": 16}
"""Folds by what is held out; fewer keys than folds are held out one by one."""
MOST_FOLD_ROWS = 60_000
"""Rows that a fold of the cross-validation learns from at most."""


Tick = Callable[[], None]


def _silent() -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class FittedModel:
    """A model, what it was fitted on and its errors on rows it never saw."""

    rows: LearningRows
    regressor: ResidualRegressor
    groups: tuple[str, ...]
    """Groups that had rows."""
    centre: Floats
    """Median log ratio by group."""
    widths: Floats
    """Shape (groups, 2, levels): see :class:`predictor.timing.residual.ResidualModel`."""
    held_out: Mapping[str, Floats]
    """Log residuals by what was held out (``shape``, ``gpu``, ``source``), NaN where a row was
    not predicted; shape (rows,)."""

    @property
    def devices(self) -> tuple[tuple[str, ...], Matrix]:
        """Columns that describe a GPU, and their distinct values, shape (devices, columns)."""
        columns = NETWORK_FEATURES if self.rows.model == "collectives" else DEVICE_FEATURES[1:]
        values = np.column_stack([self.rows.column(name) for name in columns])
        # NumPy takes every NaN for a value of its own: they become a number no feature has.
        known = np.unique(np.nan_to_num(values, nan=-LARGEST), axis=0)
        return columns, np.where(known == np.float32(-LARGEST), np.nan, known).astype(np.float32)


def regressor_for(rows: LearningRows, **settings: Any) -> ResidualRegressor:
    """Return an unfitted learner for the rows' model."""
    return ResidualRegressor(**(PARAMS[rows.model] | settings))


def fit(rows: LearningRows, seed: int = 0, **settings: Any) -> ResidualRegressor:
    """Return a learner fitted to ``rows``, libraries and shapes hidden in some of them."""
    x = rows.x.copy()
    drawn = np.random.default_rng(seed)
    for together in HIDDEN:
        if set(together) <= set(rows.features):
            hidden = drawn.random(len(rows)) < HIDDEN_SHARE
            for name in together:
                x[hidden, rows.features.index(name)] = np.nan
    return regressor_for(rows, random_state=seed, **settings).fit(x, rows.log_ratio, rows.weight)


def residuals(rows: LearningRows, regressor: ResidualRegressor) -> Floats:
    """Return log(measured / predicted) of each row's measurement, shape (rows,).

    A measurement of several kernels is predicted as the sum of theirs.
    """
    predicted = rows.analytic_s * np.exp(regressor.predict(rows.x))
    _, place = np.unique(rows.measurement, return_inverse=True)
    total = np.bincount(place, weights=predicted)[place]
    return np.asarray(np.log(rows.measured_s / total))


def cross_validated(
    rows: LearningRows, keys: NDArray[Any], *, folds: int = 4, seed: int = 0,
    most_rows: int = MOST_FOLD_ROWS, tick: Tick = _silent, **settings: Any,
) -> Floats:
    """Return each row's residual under a model that saw no row with its key, shape (rows,).

    Keys are spread over ``folds`` at random, or held out one by one when there are no more of
    them.
    """
    fold = fold_of(keys, folds, seed)
    found = np.full(len(rows), np.nan)
    for number in np.unique(fold).tolist():
        seen = rows.take(fold != number)
        if not len(seen):
            continue
        fitted = fit(seen.sample(most_rows, seed), seed, **settings)
        held = np.flatnonzero(fold == number)
        found[held] = residuals(rows.take(held), fitted)
        tick()
    return found


def fold_of(keys: NDArray[Any], folds: int, seed: int) -> NDArray[np.int64]:
    """Return the fold of each row, shape (rows,): equal keys share one."""
    names, code = np.unique(keys, return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(names))
    return np.asarray((order % folds)[code.ravel()])


def fits_of(rows: LearningRows) -> int:
    """Return how many models :func:`fitted_model` fits: the final one and one per fold."""
    return 1 + sum(min(folds, len(np.unique(getattr(rows, what)))) for what, folds in FOLDS.items())


def fitted_model(
    rows: LearningRows, *, seed: int = 0, most_fold_rows: int = MOST_FOLD_ROWS,
    tick: Tick = _silent, **settings: Any,
) -> FittedModel:
    """Return a model fitted to all ``rows`` with intervals from rows and GPUs held out.

    ``tick`` is called after each fit.
    """
    rows, names = _named_groups(rows)
    held_out = {
        what: cross_validated(rows, getattr(rows, what), folds=folds, seed=seed,
                              most_rows=most_fold_rows, tick=tick, **settings)
        for what, folds in FOLDS.items()}
    inside = grouped_widths(held_out["shape"], rows.group, len(names))
    outside = new_key_widths(held_out["gpu"], rows.group, len(names), rows.gpu)
    widths = np.stack([inside, np.fmax(inside, outside)], axis=1)
    regressor = fit(rows, seed, **settings)
    tick()
    return FittedModel(rows, regressor, names,
                       medians(rows.log_ratio, rows.group, names), widths, held_out)


def _named_groups(rows: LearningRows) -> tuple[LearningRows, tuple[str, ...]]:
    """Number the groups that have rows from 0."""
    present, code = np.unique(rows.group, return_inverse=True)
    names = tuple(rows.groups[number] for number in present.tolist())
    return replace(rows, group=code.astype(np.int64), groups=names), names


def searched(rows: LearningRows, seed: int = 0) -> dict[str, Any]:
    """Return the settings of the small grid that err least on shapes held out.

    How many trees there are and how large they grow is not searched: the default bundle's size
    decides that.
    """
    sample = rows.sample(SEARCH_ROWS, seed)

    def error(changed: Mapping[str, Any]) -> float:
        found = cross_validated(sample, sample.shape, folds=3, seed=seed, **changed)
        return float(np.nanmean(np.abs(np.expm1(-found))))

    grid = [dict(zip(GRID, values, strict=True)) for values in product(*GRID.values())]
    best = min(grid, key=error)
    return PARAMS[rows.model] | best


GRID: dict[str, tuple[Any, ...]] = {"learning_rate": (0.1, 0.2), "colsample_bytree": (0.4, 0.7)}
SEARCH_ROWS = 30_000
