"""Reads a table, predicts every row and lines both up: one function for each quantity."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from predictor.datasets.cells import flag_of
from predictor.lowering.tables import Floats, Ints
from predictor.spec.errors import InputError, Problem
from predictor.training.outcome import Outcome, Predictions, Predictor, Progress

if TYPE_CHECKING:
    import pandas as pd

    from predictor.datasets.collectives import CollectiveMeasurements
    from predictor.datasets.kernels import KernelMeasurements
    from predictor.timing.learned import LearnedTimer

CHUNK = 2048
"""Rows predicted in one pass: enough to vectorise, few enough to show progress."""
INTERVAL_LEVEL = 0.9
"""Share of the operations that their intervals are to hold."""
Quantity = Callable[["pd.DataFrame", Predictor, Progress], Outcome]


def step_times(frame: pd.DataFrame, predictor: Predictor, progress: Progress) -> Outcome:
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
        found = predictor.steps(rows.jobs[chunk], rows.strategies[chunk])
        _spread(outcome, positions[chunk], found, found.step_time_s)
        for read, resolved in zip(rows.assumed[chunk], found.assumed, strict=True):
            outcome.assumed.update({*read, *resolved})
        outcome.low[positions[chunk]] = found.low_s
        outcome.high[positions[chunk]] = found.high_s
        progress(min(start + CHUNK, len(positions)), len(positions))
    return outcome


def peak_memory(frame: pd.DataFrame, predictor: Predictor, progress: Progress) -> Outcome:
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
    found: Any = predictor.steps(rows.jobs, rows.strategies)
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


def kernel_times(frame: pd.DataFrame, predictor: Predictor, progress: Progress) -> Outcome:
    """Predict the seconds of every measured kernel."""
    from predictor.datasets.kernels import read_kernels

    found = read_kernels(_numbered(frame))
    outcome = _operators(frame, "latency_us", found, _timed_kernels(found, predictor.timer))
    progress(len(frame), len(frame))
    return outcome


def collective_times(frame: pd.DataFrame, predictor: Predictor, progress: Progress) -> Outcome:
    """Predict the seconds of every measured collective."""
    from predictor.datasets.collectives import read_collectives

    found = read_collectives(_numbered(frame))
    outcome = _operators(frame, "time_us", found, _timed_collectives(found, predictor.timer))
    progress(len(frame), len(frame))
    return outcome


QUANTITIES: dict[str, Quantity] = {
    "step_time": step_times, "peak_memory": peak_memory, "kernel_time": kernel_times,
    "collective_time": collective_times,
}
DEFAULT_GROUP = {"step_time": "family", "peak_memory": "mem_kind", "kernel_time": "source",
                 "collective_time": "source"}
"""Column that scores are grouped by when the user names none and the table has it."""
OPERATIONS = frozenset({"kernel_time", "collective_time"})
"""Quantities of single operations, which the learned models are trained on."""


@dataclass(frozen=True, slots=True)
class _Times:
    """Predictions of the measurements of a table. Seconds, NaN where there is no interval."""

    seconds: Floats
    low: Floats
    high: Floats
    provenance: list[str]

    @classmethod
    def analytic(cls, seconds: Floats) -> Self:
        """Return times that nothing was learned for."""
        nothing = np.full(len(seconds), np.nan)
        return cls(seconds, nothing, nothing, ["analytic"] * len(seconds))

    @classmethod
    def learned(cls, seconds: Floats, low: Floats, high: Floats, provenance: Ints) -> Self:
        """Return times with the words for their :class:`predictor.timing.learned.Provenance`."""
        from predictor.timing.learned import Provenance

        words = {int(one): one.name.lower() for one in Provenance}
        return cls(seconds, low, high, [words[code] for code in provenance.tolist()])


def _timed_kernels(found: KernelMeasurements, timer: LearnedTimer | None) -> _Times:
    """Time each measurement as the sum of its kernels, and its bounds as the sums of theirs.

    How a row was timed and by which library is known beforehand: it is no outcome.
    """
    from predictor.timing.device import Regime
    from predictor.timing.kernels import kernel_times as timed

    if timer is None:
        return _Times.analytic(found.sum_s(timed(found.table, found.gpus, Regime.ISOLATED)))
    from predictor.training.learning_rows import conditions_of

    one = timer.estimate_kernels(found.table, found.gpus, regime=Regime.ISOLATED,
                                 conditions=conditions_of(found), level=INTERVAL_LEVEL)
    worst = np.zeros(len(found), dtype=np.int64)
    np.maximum.at(worst, found.measurement, one.provenance)
    return _Times.learned(found.sum_s(one.seconds), found.sum_s(one.low_s),
                          found.sum_s(one.high_s), worst)


def _timed_collectives(found: CollectiveMeasurements, timer: LearnedTimer | None) -> _Times:
    from predictor.timing.collectives import collective_times as timed

    if timer is None:
        return _Times.analytic(timed(found.table, found.networks))
    one = timer.estimate_collectives(found.table, found.networks, level=INTERVAL_LEVEL)
    return _Times.learned(one.seconds, one.low_s, one.high_s, one.provenance)


def _spread(outcome: Outcome, positions: Any, found: Predictions, predicted: Any) -> None:
    """Write the predictions of some rows, and the reasons of those that were refused."""
    outcome.predicted[positions] = predicted
    for name, column in found.breakdown.items():
        target = outcome.breakdown.setdefault(name, np.full(len(outcome.why), np.nan))
        target[positions] = column
    for position, verdict, source in zip(positions, found.verdict, found.provenance, strict=True):
        outcome.verdict[position] = str(verdict)
        outcome.provenance[position] = str(source)
    for index, problems in found.refused:
        position = int(positions[index])
        outcome.refuse(position, problems)


def _operators(
    frame: pd.DataFrame, column: str, found: KernelMeasurements | CollectiveMeasurements,
    times: _Times,
) -> Outcome:
    """Line up what was read with the table's rows; ``column`` holds measured microseconds."""
    outcome = Outcome.empty(len(frame))
    if column in frame.columns:
        outcome.measured = _numbers(frame[column]) * 1e-6
    positions = np.array([int(name) for name in found.ids], dtype=np.int64)
    outcome.measured[positions] = found.measured_s
    outcome.predicted[positions] = times.seconds
    outcome.low[positions], outcome.high[positions] = times.low, times.high
    for position, source in zip(positions.tolist(), times.provenance, strict=True):
        outcome.provenance[position] = source
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
