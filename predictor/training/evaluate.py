"""Scores predictions against a table of measurements."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.datasets.cells import text_of
from predictor.datasets.tables import read_table
from predictor.spec.constraints import parse_constraint
from predictor.spec.errors import InputError
from predictor.training.metrics import Errors, Ranking, errors, interval_scores, ratios
from predictor.training.outcome import Outcome, Predictor, Progress, StepPredictor
from predictor.training.quantities import DEFAULT_GROUP, OPERATIONS, QUANTITIES
from predictor.training.rank_groups import score_order
from predictor.version import __version__

if TYPE_CHECKING:
    import pandas as pd

    from predictor.step.calibration import Calibration
    from predictor.timing.learned import LearnedTimer

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """Scores of one table; errors, coverage and regrets in percent."""

    quantity: str
    where: str
    group_by: str
    rows: int
    predicted: int
    refused: tuple[dict[str, str], ...]
    """Id and reason of every row that could not be predicted."""
    refused_by_kind: dict[str, int]
    refused_examples: dict[str, dict[str, str]]
    """First refused row of each kind."""
    assumed: dict[str, int]
    """Rows in which a default stands in for a field that is left open, by field."""
    n_untimed: int
    """Rows without a measurement that did not run out of memory either."""
    errors: Errors
    mape_group_mean: float | None
    interval_coverage: float | None
    interval_half_width: float | None
    by_group: dict[str, Errors]
    in_sample_rows: int
    """Rows that the predictor learned from."""
    out_of_memory: dict[str, int]
    ranking: Ranking
    ranking_apart: Ranking
    """Groups that mix releases of the software: weak evidence."""
    predictor: str
    calibration: str | None
    """Digest of what corrected the step times."""
    seconds: float
    per_row: pd.DataFrame
    """Columns id, measured, predicted, low, high, provenance, refused, verdict and breakdown."""

    def document(self) -> dict[str, Any]:
        """Return the JSON document: plain values, null for what is not known."""
        scores = self.errors.as_dict()
        return {
            "schema_version": SCHEMA_VERSION, "predict_time_version": __version__,
            "predictor": self.predictor, "calibration": self.calibration, "quantity": self.quantity,
            "where": self.where or None, "group_by": self.group_by or None, "rows": self.rows,
            "predicted": self.predicted, "refused": list(self.refused),
            "refused_by_kind": self.refused_by_kind, "assumed": self.assumed,
            "n_untimed": self.n_untimed,
            "scored": scores.pop("rows"), "mape": scores.pop("mape"),
            "mape_group_mean": self.mape_group_mean, **scores,
            "interval_coverage": self.interval_coverage,
            "interval_half_width": self.interval_half_width,
            "by_group": {name: found.as_dict() for name, found in self.by_group.items()},
            "in_sample_rows": self.in_sample_rows, "out_of_memory": self.out_of_memory,
            "ranking": {**self.ranking.as_dict(), "apart": self.ranking_apart.as_dict()},
            "seconds": self.seconds,
            "rows_per_second": self.rows / self.seconds if self.seconds > 0 else None,
        }

    def worst(self, count: int) -> pd.DataFrame:
        """Return the rows with the largest errors, with the column ``error`` in percent."""
        ratio = ratios(self.per_row["measured"].to_numpy(dtype=float),
                       self.per_row["predicted"].to_numpy(dtype=float))
        frame = self.per_row.assign(error=100 * (ratio - 1))
        order = frame["error"].abs().sort_values(ascending=False, kind="stable").index
        return frame.loc[order].dropna(subset=["error"]).head(count)


def evaluate(
    table: str | Path | pd.DataFrame, *, predict: StepPredictor | None = None,
    timer: LearnedTimer | None = None, calibration: Calibration | None = None,
    where: str | None = None, group_by: str | None = None, quantity: str = "step_time",
    learned_from: Collection[str] = (), predictor: str = "analytic",
    progress: Progress | None = None,
) -> EvaluationReport:
    """Predict every row of ``table`` from its configuration alone and score the predictions.

    Parameters
    ----------
    table
        Path of a CSV or parquet file, or a frame, in the schema of ``quantity``.
    predict
        Called with jobs and strategies; the prediction with ``timer`` when not given.
    timer
        Learned times of kernels and collectives; the analytic ones when not given.
    calibration
        What corrects the step times of one machine; ``predict`` has its own.
    where
        Constraint that selects rows (:mod:`predictor.spec.constraints`).
    group_by
        Column whose groups are scored apart.
    quantity
        ``step_time``, ``peak_memory``, ``kernel_time`` or ``collective_time``.
    learned_from
        What the predictor was trained on: names of sources, as in the column ``source``, for
        kernels and collectives; ids of rows otherwise.
    predictor
        What the document calls the predictor.
    progress
        Called with the numbers of rows done and of rows to predict.

    Raises
    ------
    InputError
        When the table, a column or the constraint cannot be read.
    """
    if quantity not in QUANTITIES:
        raise InputError.of("known-quantity", f"there is no quantity {quantity!r}",
                            f"choose one of {', '.join(QUANTITIES)}", "quantity")
    answering = Predictor(predict or _steps(timer, calibration), timer)
    _import_readers()
    began = time.perf_counter()
    frame, ids = _selected(read_table(table), where)
    outcome = QUANTITIES[quantity](frame, answering, progress or _silent)
    seconds = time.perf_counter() - began
    group = _group_column(frame, group_by, quantity)
    cells = outcome.groups if outcome.groups and group_by is None else frame.get(group)
    groups = {} if cells is None else _by_group(cells, outcome)
    mapes = [found.mape for found in groups.values() if found.mape is not None]
    refused = outcome.refused
    ranked, apart = score_order(frame, outcome)
    coverage, half_width = interval_scores(
        outcome.measured, outcome.low, outcome.high, outcome.predicted)
    return EvaluationReport(
        quantity=quantity, where=where or "", group_by=group, rows=len(frame),
        predicted=int(len(frame) - refused.sum()),
        refused=tuple({"id": ids[row], "why": outcome.why[row]} for row in np.flatnonzero(refused)),
        refused_by_kind=outcome.refusal_kinds(), assumed=dict(outcome.assumed.most_common()),
        refused_examples={kind: {"id": ids[row], "why": outcome.why[row]}
                          for kind, row in outcome.refusal_examples().items()},
        n_untimed=int(np.sum(np.isnan(outcome.measured) & ~outcome.out_of_memory)),
        errors=errors(outcome.measured, outcome.predicted),
        mape_group_mean=float(np.mean(mapes)) if mapes else None,
        interval_coverage=coverage, interval_half_width=half_width, by_group=groups,
        in_sample_rows=_in_sample(frame, ids, quantity, set(learned_from)),
        out_of_memory=_memory_score(outcome), ranking=ranked, ranking_apart=apart,
        predictor=predictor, calibration=calibration.digest if calibration else None,
        seconds=seconds, per_row=_per_row(ids, outcome))


def _steps(timer: LearnedTimer | None, calibration: Calibration | None) -> StepPredictor:
    from predictor.step.predict import predict_steps

    return partial(predict_steps, timer=timer, calibration=calibration)


def _in_sample(
    frame: pd.DataFrame, ids: list[str], quantity: str, learned_from: set[str]
) -> int:
    """Return how many rows the predictor learned from."""
    names: Iterable[str] = ids
    if quantity in OPERATIONS:
        names = map(text_of, frame["source"]) if "source" in frame.columns else ()
    return sum(name in learned_from for name in names)


def _import_readers() -> None:
    """Load what reading needs, so that the clock counts work and not start-up."""
    import pandas  # noqa: F401

    import predictor.datasets.steps  # noqa: F401


def _silent(done: int, total: int) -> None:
    """Report to nobody."""


def _selected(frame: pd.DataFrame, where: str | None) -> tuple[pd.DataFrame, list[str]]:
    """The rows that ``where`` selects, numbered from 0, and their ids in the whole table."""
    ids = _ids(frame)
    if where:
        constraint = parse_constraint(where)
        columns = {str(name): frame[name].to_numpy() for name in frame.columns}
        chosen = constraint.matches(columns)
        frame = frame[chosen]
        ids = [ids[row] for row in np.flatnonzero(chosen)]
    return frame.reset_index(drop=True), ids


def _ids(frame: pd.DataFrame) -> list[str]:
    """The table's own ids, or row numbers where it has none."""
    if "id" not in frame.columns:
        return [str(row) for row in range(len(frame))]
    return [text_of(cell) or str(row) for row, cell in enumerate(frame["id"])]


def _group_column(frame: pd.DataFrame, group_by: str | None, quantity: str) -> str:
    if group_by is None:
        usual = DEFAULT_GROUP[quantity]
        return usual if usual in frame.columns else ""
    if group_by not in frame.columns:
        raise InputError.of("known-column", f"the table has no column {group_by!r} to group by",
                            "choose a column of the table", "group_by")
    return group_by


def _by_group(cells: Iterable[object], outcome: Outcome) -> dict[str, Errors]:
    names, member = np.unique([text_of(cell) or "(blank)" for cell in cells],
                              return_inverse=True)
    order = np.argsort(member, kind="stable")
    ends = np.cumsum(np.bincount(member, minlength=len(names)))
    rows = np.split(order, ends)[:-1]
    return {str(name): errors(outcome.measured[at], outcome.predicted[at])
            for name, at in zip(names, rows, strict=True)}


def _memory_score(outcome: Outcome) -> dict[str, int]:
    """Runs that were out of memory, and which verdicts were right."""
    oom, doubted = outcome.out_of_memory, outcome.does_not_fit
    ran = np.isfinite(outcome.measured) & ~oom
    return {"rows": int(oom.sum()), "predicted_not_to_fit": int((oom & doubted).sum()),
            "ran_but_predicted_not_to_fit": int((ran & doubted).sum())}


def _per_row(ids: list[str], outcome: Outcome) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame({
        "id": ids, "measured": outcome.measured, "predicted": outcome.predicted,
        "low": outcome.low, "high": outcome.high, "provenance": outcome.provenance,
        "refused": outcome.why, "verdict": outcome.verdict, **outcome.breakdown})
