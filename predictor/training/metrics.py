"""How good predictions are: relative errors, intervals and the order of strategies. Pure NumPy."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from predictor.lowering.tables import Floats

TIE = 0.03
"""Measured pairs closer than this share of the smaller are ties: repeated runs of one
configuration differ by 2 to 5 % (replicates of MLPerf Training by 0.2 to 3.6 %)."""
FEWEST_STRATEGIES = 3
"""Distinct timed strategies that make a group worth ordering."""
OOM_REGRET = 1.0
"""Regret of choosing a strategy that ran out of memory."""


@dataclass(frozen=True, slots=True)
class Errors:
    """Relative errors of the rows that have both a measurement and a prediction, in percent."""

    rows: int
    mape: float | None
    median_ape: float | None
    bias: float | None
    """``100 * (mean(predicted / measured) - 1)``."""
    max_ape: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)


def errors(measured: Floats, predicted: Floats) -> Errors:
    """Return the errors over the rows where both arrays, of shape (rows,), hold a number."""
    ratio = ratios(measured, predicted)
    ratio = ratio[np.isfinite(ratio)]
    if not len(ratio):
        return Errors(0, None, None, None, None)
    ape = 100 * np.abs(ratio - 1)
    return Errors(len(ratio), float(ape.mean()), float(np.median(ape)),
                  100 * (float(ratio.mean()) - 1), float(ape.max()))


def ratios(measured: Floats, predicted: Floats) -> Floats:
    """Return predicted over measured, NaN where either is missing or nothing was measured."""
    usable = np.isfinite(measured) & (np.nan_to_num(measured) > 0)
    found: Floats = np.full(len(measured), np.nan)
    np.divide(predicted, measured, out=found, where=usable)
    return found


def interval_scores(
    measured: Floats, low: Floats, high: Floats, predicted: Floats
) -> tuple[float | None, float | None]:
    """Return coverage and mean relative half width in percent; None where no row has an interval.

    All arrays have shape (rows,).
    """
    known = np.isfinite(low) & np.isfinite(high) & np.isfinite(measured) & np.isfinite(predicted)
    if not known.any():
        return None, None
    inside = (low[known] <= measured[known]) & (measured[known] <= high[known])
    half = (high[known] - low[known]) / 2 / predicted[known]
    return 100 * float(inside.mean()), 100 * float(half.mean())


@dataclass(frozen=True, slots=True)
class Candidate:
    """One distinct strategy of a rank group. Times are seconds per sample."""

    measured_s: float
    """NaN when it ran out of memory."""
    predicted_s: float
    """Infinite when it was refused: a refused strategy counts as predicted last."""
    out_of_memory: bool = False
    choosable: bool = True
    """False when it was predicted not to fit."""


@dataclass(frozen=True, slots=True)
class GroupScore:
    """How well one group was ordered."""

    tau: float
    regret: float
    """Measured time per sample of the first choice over the best of the group, minus one."""


def score_group(candidates: Sequence[Candidate]) -> GroupScore | None:
    """Return the scores of one group, None when measured ties leave no pair to order.

    Strategies that were neither timed nor out of memory count for nothing.
    """
    timed = [one for one in candidates if np.isfinite(one.measured_s)]
    tau = kendall_tau(np.array([one.measured_s for one in timed]),
                      np.array([one.predicted_s for one in timed]))
    if tau is None:
        return None
    return GroupScore(tau, top1_regret([
        one for one in candidates if one.out_of_memory or np.isfinite(one.measured_s)]))


def kendall_tau(measured: Floats, predicted: Floats) -> float | None:
    """Return ``(C - D) / (C + D + P)`` over pairs whose measurements differ by :data:`TIE`.

    ``P`` counts pairs predicted exactly equal. None when no pair remains.
    """
    first, second = np.triu_indices(len(measured), k=1)
    a, b = measured[first], measured[second]
    apart = np.abs(a - b) >= TIE * np.minimum(a, b)
    if not apart.any():
        return None
    order = np.sign(a - b)[apart]
    guess = (predicted[first] > predicted[second]).astype(float) - (
        predicted[first] < predicted[second])
    return float(np.sum(order * guess[apart]) / apart.sum())


def top1_regret(candidates: Sequence[Candidate]) -> float:
    """Return the regret of the strategy predicted fastest; tied first choices average.

    When every strategy is predicted not to fit, nothing can be chosen, which costs as much as
    choosing one that ran out of memory.
    """
    best = min(one.measured_s for one in candidates if np.isfinite(one.measured_s))
    open_ones = [one for one in candidates if one.choosable]
    if not open_ones:
        return OOM_REGRET
    least = min(one.predicted_s for one in open_ones)
    chosen = [one for one in open_ones if one.predicted_s == least]
    return float(np.mean([OOM_REGRET if one.out_of_memory else one.measured_s / best - 1
                          for one in chosen]))


def merge_identical(keys: Sequence[Hashable], candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return one candidate per key: times averaged, out of memory only when all were."""
    by_key: dict[Hashable, list[Candidate]] = {}
    for key, one in zip(keys, candidates, strict=True):
        by_key.setdefault(key, []).append(one)
    return [_merged(same) for same in by_key.values()]


def _merged(same: Sequence[Candidate]) -> Candidate:
    if len(same) == 1:
        return same[0]
    timed = [one.measured_s for one in same if np.isfinite(one.measured_s)]
    return Candidate(
        measured_s=float(np.mean(timed)) if timed else float("nan"),
        predicted_s=float(np.mean([one.predicted_s for one in same])),
        out_of_memory=not timed and any(one.out_of_memory for one in same),
        choosable=all(one.choosable for one in same))


@dataclass(frozen=True, slots=True)
class Ranking:
    """Scores over groups, in percent where they are regrets."""

    groups: int
    kendall_tau_mean: float | None
    top1_regret_mean: float | None
    top1_regret_max: float | None
    groups_without_pairs: int
    """Groups left out because all their measurements are ties."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)


def ranking(groups: Sequence[Sequence[Candidate]]) -> Ranking:
    """Return the scores of groups of distinct candidates.

    Groups with fewer than :data:`FEWEST_STRATEGIES` timed candidates do not count at all.
    """
    wide = [group for group in groups
            if sum(np.isfinite(one.measured_s) for one in group) >= FEWEST_STRATEGIES]
    scores = [score for score in map(score_group, wide) if score is not None]
    left_out = len(wide) - len(scores)
    if not scores:
        return Ranking(0, None, None, None, left_out)
    regrets = [100 * score.regret for score in scores]
    return Ranking(len(scores), float(np.mean([score.tau for score in scores])),
                   float(np.mean(regrets)), float(max(regrets)), left_out)
