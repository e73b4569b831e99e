"""How good a fitted model is on rows it never saw, beside the analytic model on the same rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from predictor.lowering.tables import Floats
from predictor.training.conformal import LEVELS, covered, grouped_widths, new_key_widths
from predictor.training.fit import FittedModel, fold_of
from predictor.training.learning_rows import LearningRows
from predictor.training.metrics import errors
from predictor.training.record import Scores

if TYPE_CHECKING:
    import pandas as pd

LEVEL = 0.9
"""Level of the intervals that are scored."""
HELD_OUT = ("shape", "gpu", "source")


def model_scores(fitted: FittedModel) -> dict[str, dict[str, Scores]]:
    """Return the scores by what was held out: ``gemm_shape``, ``gemm_gpu``, ``gemm_analytic`` ...

    Each maps ``all`` and every group to its scores. Rows of one measurement count once.
    """
    rows = fitted.rows
    once = np.sort(np.unique(rows.measurement, return_index=True)[1])
    rows = rows.take(once)
    found = {f"{rows.model}_analytic": _by_group(fitted, rows, rows.log_ratio,
                                                 np.full(len(rows), np.nan))}
    for what in HELD_OUT:
        residual = fitted.held_out[what][once]
        if np.isfinite(residual).any():
            widths = _honest_widths(rows, residual, what)
            found[f"{rows.model}_{what}"] = _by_group(fitted, rows, residual, widths)
    return found


def _honest_widths(rows: LearningRows, residual: Floats, what: str) -> Floats:
    """Return each row's width from the rows of the other half of the keys, shape (rows,)."""
    keys = getattr(rows, what)
    half = fold_of(keys, 2, seed=1)
    widths = np.full(len(rows), np.nan)
    place = LEVELS.tolist().index(LEVEL)
    for number in (0, 1):
        other = half != number
        seen, group, count = residual[other], rows.group[other], len(rows.groups)
        table = grouped_widths(seen, group, count) if what == "shape" else new_key_widths(
            seen, group, count, keys[other])
        widths[~other] = table[rows.group[~other], place]
    return widths


def _by_group(
    fitted: FittedModel, rows: LearningRows, residual: Floats, widths: Floats
) -> dict[str, Scores]:
    scores = {"all": scores_of(residual, widths)}
    for number, name in enumerate(fitted.groups):
        own = rows.group == number
        scores[name] = scores_of(residual[own], widths[own])
    return scores


def scores_of(residual: Floats, widths: Floats) -> Scores:
    """Return the scores of log(measured / predicted) with log half widths, both (rows,)."""
    known = np.isfinite(residual)
    residual, widths = residual[known], widths[known]
    found = errors(np.ones(len(residual)), np.exp(-residual))
    timed = np.isfinite(widths)
    return Scores(
        mape=found.mape, median_ape=found.median_ape, bias=found.bias,
        coverage=100 * covered(residual[timed], widths[timed]) if timed.any() else None,
        half_width=100 * float(np.mean(np.sinh(widths[timed]))) if timed.any() else None,
        rows=found.rows)


def worst_rows(models: Mapping[str, FittedModel], count: int = 10) -> pd.DataFrame:
    """Return the rows of each model and hold-out with the largest errors, worst first."""
    import pandas as pd

    return pd.concat([pd.DataFrame(_worst(fitted, what, count))
                      for fitted in models.values() for what in HELD_OUT], ignore_index=True)


def _worst(fitted: FittedModel, what: str, count: int) -> Iterator[dict[str, object]]:
    rows = fitted.rows
    residual = fitted.held_out[what]
    error: NDArray[np.float64] = 100 * np.abs(np.expm1(-residual))
    order = np.argsort(-np.nan_to_num(error, nan=-1.0), kind="stable")[:count]
    for row in order[np.isfinite(error[order])].tolist():
        yield {"model": rows.model, "held_out": what, "group": fitted.groups[rows.group[row]],
               "source": rows.source[row], "gpu": rows.gpu[row], "operation": rows.label[row],
               "measured_s": rows.measured_s[row],
               "predicted_s": rows.measured_s[row] * float(np.exp(-residual[row])),
               "analytic_s": rows.measured_s[row] * float(np.exp(-rows.log_ratio[row])),
               "error_percent": 100 * float(np.expm1(-residual[row]))}
