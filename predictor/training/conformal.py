"""Split conformal intervals by group on log residuals.

An interval of level q reaches as far as the ceil((n + 1) q)-th smallest of the n absolute errors
of rows that the model had not seen (Vovk, Gammerman and Shafer, Algorithmic Learning in a Random
World, section 2.3; by group: section 4.5). It covers q of new rows like them, whatever the errors'
distribution. Rows of a GPU that nobody measured are not like them: they have widths of their own,
from GPUs that were held out whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predictor.lowering.tables import Floats, Ints

LEVELS = np.array([0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98])
FEWEST_PER_KEY = 20
"""Held-out rows that a key (a GPU) needs to have a width."""
FEWEST = 100
"""Held-out rows that a group needs for widths of its own; smaller groups share those of the
model."""


def conformal_widths(errors: Floats, levels: Floats = LEVELS) -> Floats:
    """Return the width of each level, shape (levels,), from log residuals of shape (rows,).

    NaN where there are too few rows for the level.
    """
    ordered = np.sort(np.abs(errors))
    rank = np.ceil((len(ordered) + 1) * levels).astype(np.int64)
    found = np.full(len(levels), np.nan)
    enough = (rank <= len(ordered)) & (rank > 0)
    found[enough] = ordered[rank[enough] - 1]
    return found


def grouped_widths(errors: Floats, group: Ints, groups: int) -> Floats:
    """Return the widths of every group, shape (groups, levels).

    ``errors`` and ``group`` have shape (rows,); errors that are not finite do not count. A group
    with fewer than :data:`FEWEST` rows gets the widths of all rows together, or its own where
    those are wider.
    """
    known = np.isfinite(errors)
    errors, group = errors[known], group[known]
    together = conformal_widths(errors)
    found = np.empty((groups, len(LEVELS)))
    for number in range(groups):
        own = errors[group == number]
        found[number] = conformal_widths(own) if len(own) >= FEWEST else np.fmax(
            together, conformal_widths(own))
    return np.asarray(np.maximum.accumulate(found, axis=1))


def new_key_widths(
    errors: Floats, group: Ints, groups: int, keys: NDArray[Any], levels: Floats = LEVELS
) -> Floats:
    """Return the widths of every group for keys that nobody measured, shape (groups, levels).

    Errors of one GPU go together, so its rows are no sample of those of another one. Two layers
    (Dunn, Wasserman and Ramdas, Distribution-free prediction sets for two-layer hierarchical
    models, 2022, section 3.1): the width of level q of each key held out, then the q-quantile of
    those widths over keys. A group with fewer than two keys gets the widths of all rows together,
    or its own where those are wider.

    ``errors``, ``group`` and ``keys`` have shape (rows,); errors that are not finite do not count.
    """
    known = np.isfinite(errors)
    errors, group, keys = errors[known], group[known], keys[known]
    together = _over_keys(errors, keys, levels)
    found = np.empty((groups, len(levels)))
    for number in range(groups):
        own = group == number
        found[number] = np.fmax(_over_keys(errors[own], keys[own], levels), np.where(
            len(np.unique(keys[own])) < 2, together, 0.0))
    return np.asarray(np.maximum.accumulate(found, axis=1))


def _over_keys(errors: Floats, keys: NDArray[Any], levels: Floats) -> Floats:
    """Return the quantile over keys of each key's widths, NaN without a key that has enough."""
    names, code, count = np.unique(keys, return_inverse=True, return_counts=True)
    each = [conformal_widths(errors[code.ravel() == number], levels)
            for number in range(len(names)) if count[number] >= FEWEST_PER_KEY]
    if not each:
        return np.full(len(levels), np.nan)
    table = np.array(each)
    return np.array([
        np.quantile(column[np.isfinite(column)], level, method="higher")
        if np.isfinite(column).any() else np.nan
        for column, level in zip(table.T, levels, strict=True)])


def covered(errors: Floats, widths: Floats) -> float:
    """Return the share of errors that are within their widths; both of shape (rows,)."""
    return float(np.mean(np.abs(errors) <= widths)) if len(errors) else float("nan")


def medians(values: Floats, group: Ints, groups: Sequence[str]) -> Floats:
    """Return the median of each group, 0 for a group without rows, shape (groups,)."""
    found = np.zeros(len(groups))
    for number in np.unique(group).tolist():
        found[number] = np.median(values[group == number])
    return found
