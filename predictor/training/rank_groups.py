"""Finds the rows of a steps table that differ only in strategy, and scores their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from predictor.datasets.cells import number_of, text_of
from predictor.training.metrics import Candidate, Ranking, merge_identical, ranking
from predictor.training.outcome import Outcome

if TYPE_CHECKING:
    import pandas as pd

CROSS_RELEASE = "xrel-"
"""Rank groups so named compare releases of the software, not only strategies."""


def score_order(frame: pd.DataFrame, outcome: Outcome) -> tuple[Ranking, Ranking]:
    """Return the scores of the table's rank groups, and of those that mix releases apart.

    A table without the columns ``rank_group`` and ``global_batch`` has no groups.
    """
    kept: list[list[Candidate]] = []
    apart: list[list[Candidate]] = []
    if outcome.strategies and {"rank_group", "global_batch"} <= set(frame.columns):
        samples = [number_of(cell) or np.nan for cell in frame["global_batch"]]
        releases = _texts(frame, "framework_version")
        for name, rows in _groups(frame).items():
            candidates = merge_identical(
                [outcome.strategies[row] for row in rows],
                [_candidate(outcome, row, samples[row]) for row in rows])
            mixed = name.startswith(CROSS_RELEASE) or len({releases[row] for row in rows}) > 1
            (apart if mixed else kept).append(candidates)
    return ranking(kept), ranking(apart)


def _groups(frame: pd.DataFrame) -> dict[str, list[int]]:
    """Positions of the rows by rank group and workload."""
    groups: dict[str, list[int]] = {}
    workloads = _texts(frame, "workload")
    for row, name in enumerate(_texts(frame, "rank_group")):
        if name:
            # pretrain(mock data) trains the same way as pretrain.
            groups.setdefault(f"{name}\t{workloads[row].split('(')[0].lower()}", []).append(row)
    return groups


def _texts(frame: pd.DataFrame, column: str) -> Sequence[str]:
    if column not in frame.columns:
        return [""] * len(frame)
    return [text_of(cell) for cell in frame[column]]


def _candidate(outcome: Outcome, row: int, samples: float) -> Candidate:
    refused = bool(outcome.why[row])
    return Candidate(
        measured_s=float(outcome.measured[row]) / samples,
        predicted_s=np.inf if refused else float(outcome.predicted[row]) / samples,
        out_of_memory=bool(outcome.out_of_memory[row]),
        choosable=not outcome.does_not_fit[row])
