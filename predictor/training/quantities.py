"""Reads a table, predicts every row and lines both up: one function for each quantity."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.datasets.cells import flag_of
from predictor.spec.errors import InputError, Problem
from predictor.training.outcome import Outcome, Predictions, Progress, StepPredictor

if TYPE_CHECKING:
    import pandas as pd

CHUNK = 2048
"""Rows predicted in one pass: enough to vectorise, few enough to show progress."""
Quantity = Callable[["pd.DataFrame", StepPredictor, Progress], Outcome]


def step_times(frame: pd.DataFrame, predict: StepPredictor, progress: Progress) -> Outcome:
    """Predict the step time of every row of a steps table, in seconds."""
    from predictor.datasets.steps import read_steps

    _require(frame, "step_time_s", "step_time")
    rows = read_steps(frame)
    outcome = Outcome.empty(len(frame))
    outcome.measured = _numbers(frame["step_time_s"])
    if "oom" in frame.columns:
        outcome.out_of_memory = np.array([flag_of(cell) is True for cell in frame["oom"]],
                                         dtype=bool)
        outcome.measured[outcome.out_of_memory] = np.nan
    for label, problems in rows.refused:
        outcome.refuse(int(str(label)), problems)
    positions = np.array(rows.row_index, dtype=np.int64)
    outcome.strategies = list(range(-len(frame), 0))
    for position, job, strategy in zip(rows.row_index, rows.jobs, rows.strategies, strict=True):
        outcome.strategies[position] = (job, strategy)
    for start in range(0, len(positions), CHUNK):
        chunk = slice(start, start + CHUNK)
        found = predict(rows.jobs[chunk], rows.strategies[chunk])
        _spread(outcome, positions[chunk], found, found.step_time_s)
        for read, resolved in zip(rows.assumed[chunk], found.assumed, strict=True):
            outcome.assumed.update({*read, *resolved})
        outcome.low[positions[chunk]] = found.low_s
        outcome.high[positions[chunk]] = found.high_s
        progress(min(start + CHUNK, len(positions)), len(positions))
    return outcome


def peak_memory(frame: pd.DataFrame, predict: StepPredictor, progress: Progress) -> Outcome:
    """Predict the peak memory of every row of a memory table, in bytes of the kind it measured."""
    from predictor.datasets.memory import measured, read_memory

    rows = read_memory(frame)
    outcome = Outcome.empty(len(frame))
    positions = np.array(rows.row_index, dtype=np.int64)
    outcome.measured[positions] = rows.measured_bytes
    for label, problems in rows.refused:
        row = int(str(label))
        outcome.refuse(row, problems)
        with suppress(InputError):
            cells = {str(name): frame[name].iat[row] for name in frame.columns}
            outcome.measured[row] = measured(cells)[1]
    found: Any = predict(rows.jobs, rows.strategies)
    peak = np.where(rows.last_rank, found.last_rank_bytes, found.peak_bytes)
    kinds = np.array(rows.mem_kind)
    predicted = np.select([kinds == "reserved", kinds == "device"],
                          [found.reserved_bytes, found.device_bytes], peak)
    _spread(outcome, positions, found, predicted)
    progress(len(positions), len(positions))
    outcome.groups = [""] * len(frame)
    for row, kind, last in zip(rows.row_index, rows.mem_kind, rows.last_rank, strict=True):
        outcome.groups[row] = f"{kind}, last rank" if last else kind
    outcome.breakdown = {}  # seconds explain no bytes
    return outcome


def kernel_times(frame: pd.DataFrame, predict: StepPredictor, progress: Progress) -> Outcome:
    """Predict the seconds of every measured kernel."""
    from predictor.datasets.kernels import read_kernels
    from predictor.timing.device import Regime
    from predictor.timing.kernels import kernel_times as timed

    found = read_kernels(_numbered(frame))
    seconds = timed(found.table, found.gpus, Regime.ISOLATED)
    outcome = _operators(frame, "latency_us", found, found.sum_s(seconds))
    progress(len(frame), len(frame))
    return outcome


def collective_times(frame: pd.DataFrame, predict: StepPredictor, progress: Progress) -> Outcome:
    """Predict the seconds of every measured collective."""
    from predictor.datasets.collectives import read_collectives
    from predictor.timing.collectives import collective_times as timed

    found = read_collectives(_numbered(frame))
    outcome = _operators(frame, "time_us", found, timed(found.table, found.networks))
    progress(len(frame), len(frame))
    return outcome


QUANTITIES: dict[str, Quantity] = {
    "step_time": step_times, "peak_memory": peak_memory, "kernel_time": kernel_times,
    "collective_time": collective_times,
}
DEFAULT_GROUP = {"step_time": "family", "peak_memory": "mem_kind", "kernel_time": "source",
                 "collective_time": "source"}
"""Column that scores are grouped by when the user names none and the table has it."""


def _spread(outcome: Outcome, positions: Any, found: Predictions, predicted: Any) -> None:
    """Write the predictions of some rows, and the reasons of those that were refused."""
    outcome.predicted[positions] = predicted
    for name, column in found.breakdown.items():
        target = outcome.breakdown.setdefault(name, np.full(len(outcome.why), np.nan))
        target[positions] = column
    for position, verdict in zip(positions, found.verdict, strict=True):
        outcome.verdict[position] = str(verdict)
        outcome.provenance[position] = found.provenance
    for index, problems in found.refused:
        position = int(positions[index])
        outcome.refuse(position, problems)
        outcome.provenance[position] = ""


def _operators(frame: pd.DataFrame, column: str, found: Any, predicted: Any) -> Outcome:
    """Line up what was read with the table's rows; ``column`` holds measured microseconds."""
    outcome = Outcome.empty(len(frame))
    if column in frame.columns:
        outcome.measured = _numbers(frame[column]) * 1e-6
    positions = np.array([int(name) for name in found.ids], dtype=np.int64)
    outcome.measured[positions] = found.measured_s
    outcome.predicted[positions] = predicted
    for position in positions:
        outcome.provenance[position] = "analytic"
    for name, why in found.refused:
        outcome.refuse(int(name), [Problem(_slug(why), why, "")])
    return outcome


def _slug(why: str) -> str:
    return "-".join(why.split()[:6])


def _numbered(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows named by position, so that answers find their way back."""
    return frame.assign(id=[str(row) for row in range(len(frame))])


def _numbers(cells: pd.Series[Any]) -> Any:
    """Positive numbers; NaN for a blank, for text and for what no measurement can be."""
    import pandas as pd

    found = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=float)
    return np.where(np.isfinite(found) & (found > 0), found, np.nan)


def _require(frame: pd.DataFrame, column: str, quantity: str) -> None:
    if column not in frame.columns:
        raise InputError.of("measured-column", f"the table has no column {column}, which "
                            f"--quantity {quantity} is scored against",
                            "choose the quantity that the table measures", "quantity")
