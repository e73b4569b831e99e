"""The step time and memory of one strategy, or of many at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from predictor.lowering.batch import Batch
from predictor.lowering.flops import hardware_flops, model_flops
from predictor.lowering.tables import Floats, GpuTable, Ints
from predictor.memory import MemoryTable, memory_of
from predictor.spec.errors import InputError, Problem
from predictor.spec.job import TrainingJob
from predictor.spec.resolve import resolve
from predictor.spec.rules import check_strategy
from predictor.spec.strategy import Strategy
from predictor.step.calibration import Calibration, CoefficientColumns
from predictor.step.compose import BREAKDOWN, StepTimes, Timer, time_steps
from predictor.timing.analytic import AnalyticTimer

Refusal = tuple[int, tuple[Problem, ...]]
Texts = np.ndarray[Any, np.dtype[np.str_]]
EXTRAPOLATED = "extrapolated"


@runtime_checkable
class Covering(Protocol):
    """A timer that knows which GPUs it learned from."""

    def covers(self, gpus: GpuTable) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return whether it learned from each GPU, shape (gpus,)."""
        ...


@dataclass(frozen=True, slots=True)
class StepPredictions:
    """Predictions for many pairs of job and strategy. Arrays have shape (pairs,).

    A refused pair holds NaN in every number, an empty verdict and an empty provenance.
    """

    step_time_s: Floats
    low_s: Floats
    """Lower end of the interval; NaN while no interval has been calibrated."""
    high_s: Floats
    provenance: Texts
    """Name of the model behind the seconds, or ``extrapolated`` where it was learned from other
    GPUs only."""
    breakdown: dict[str, Floats]
    """Exposed seconds by :data:`predictor.step.compose.BREAKDOWN`; they sum to the step time."""
    peak_bytes: Floats
    """Most bytes allocated by tensors on any pipeline rank."""
    last_rank_bytes: Floats
    """Bytes allocated on the last pipeline rank, which is what Megatron-LM logs."""
    reserved_bytes: Floats
    """Most bytes held by the caching allocator on any rank."""
    device_bytes: Floats
    """Most bytes in use on a GPU, driver context and communication buffers included."""
    capacity_bytes: Floats
    verdict: Texts
    """``fits``, ``tight`` or ``does-not-fit``."""
    refused: tuple[Refusal, ...]
    """Position of each pair that breaks a rule, with everything wrong with it."""
    assumed: tuple[dict[str, Any], ...]
    """Per pair: what was filled in, with value and source."""

    def __len__(self) -> int:
        return len(self.step_time_s)


@dataclass(frozen=True, slots=True)
class StepPrediction:
    """One prediction with everything behind it, ready for :func:`predictor.step.document`."""

    job: TrainingJob
    strategy: Strategy
    """Resolved: no open fields."""
    assumed: dict[str, Any]
    predictions: StepPredictions
    """A batch of one."""
    batch: Batch
    times: StepTimes
    memory: MemoryTable
    model_flops: float
    """FLOP of one step over all GPUs, without recomputation."""
    hardware_flops: float

    @property
    def step_time_s(self) -> float:
        """Seconds of one training step."""
        return float(self.predictions.step_time_s[0])

    @property
    def breakdown(self) -> dict[str, float]:
        """Exposed seconds by cause; they sum to :attr:`step_time_s`."""
        return {name: float(self.predictions.breakdown[name][0]) for name in BREAKDOWN}

    @property
    def verdict(self) -> str:
        """``fits``, ``tight`` or ``does-not-fit``."""
        return str(self.predictions.verdict[0])


def predict_step(
    job: TrainingJob, strategy: Strategy, *, timer: Timer | None = None,
    calibration: Calibration | None = None,
) -> StepPrediction:
    """Return the step time, memory and their breakdown for one strategy.

    ``calibration`` corrects the times of the GPU that it was fitted on.

    Raises
    ------
    InputError
        With every rule of the target framework that the strategy breaks.
    """
    job, strategy, assumed = resolve(job, strategy)
    problems = check_strategy(job, strategy)
    if problems:
        raise InputError(problems)
    chosen = timer or AnalyticTimer()
    batch = Batch.from_pairs([job], [strategy])
    times = time_steps(batch, chosen, CoefficientColumns.of(batch, [job], calibration))
    memory = memory_of(batch, times.stages)
    predictions = _gather(1, np.array([0]), times, memory, _provenance(batch, chosen), (),
                          (assumed,))
    return StepPrediction(
        job=job, strategy=strategy, assumed=assumed, predictions=predictions, batch=batch,
        times=times, memory=memory, model_flops=float(model_flops(batch, times.stages)[0]),
        hardware_flops=float(hardware_flops(batch, times.stages)[0]))


def predict_steps(
    jobs: Sequence[TrainingJob], strategies: Sequence[Strategy], *, timer: Timer | None = None,
    calibration: Calibration | None = None,
) -> StepPredictions:
    """Return the predictions for pairs of ``jobs`` and ``strategies``, all in one pass.

    A pair that breaks a rule is refused with its reasons; the others are unaffected.
    """
    resolved = [resolve(job, strategy) for job, strategy in zip(jobs, strategies, strict=True)]
    problems = [check_strategy(job, strategy) for job, strategy, _ in resolved]
    refused = tuple((index, found) for index, found in enumerate(problems) if found)
    assumed = tuple(entry for _, _, entry in resolved)
    kept = np.array([index for index, found in enumerate(problems) if not found], dtype=np.int64)
    if not len(kept):
        return _nothing(len(resolved), refused, assumed)
    chosen = timer or AnalyticTimer()
    kept_jobs = [resolved[i][0] for i in kept]
    batch = Batch.from_pairs(kept_jobs, [resolved[i][1] for i in kept])
    times = time_steps(batch, chosen, CoefficientColumns.of(batch, kept_jobs, calibration))
    memory = memory_of(batch, times.stages)
    return _gather(len(resolved), kept, times, memory, _provenance(batch, chosen), refused,
                   assumed)


def _provenance(batch: Batch, timer: Timer) -> Texts:
    """Return what the seconds of each row rest on, shape (rows,)."""
    if not isinstance(timer, Covering):
        return np.full(len(batch), timer.provenance)
    covered = timer.covers(batch.gpus)[batch.device]
    return np.where(covered, timer.provenance, EXTRAPOLATED)


def _gather(
    size: int, kept: Ints, times: StepTimes, memory: MemoryTable, provenance: Texts,
    refused: tuple[Refusal, ...], assumed: tuple[dict[str, Any], ...],
) -> StepPredictions:
    def spread(values: Floats) -> Floats:
        column = np.full(size, np.nan)
        column[kept] = values
        return column

    verdict, named = _blank(size), _blank(size)
    verdict[kept], named[kept] = memory.verdict, provenance
    nothing = np.full(size, np.nan)
    return StepPredictions(
        step_time_s=spread(times.step_time_s), low_s=nothing, high_s=nothing,
        provenance=named,
        breakdown={name: spread(column) for name, column in times.breakdown.items()},
        peak_bytes=spread(memory.peak_bytes), last_rank_bytes=spread(memory.last_rank_bytes),
        reserved_bytes=spread(memory.reserved_bytes), device_bytes=spread(memory.device_bytes),
        capacity_bytes=spread(memory.capacity_bytes), verdict=verdict, refused=refused,
        assumed=assumed)


def _nothing(
    size: int, refused: tuple[Refusal, ...], assumed: tuple[dict[str, Any], ...]
) -> StepPredictions:
    nothing = np.full(size, np.nan)
    return StepPredictions(
        nothing, nothing, nothing, _blank(size), dict.fromkeys(BREAKDOWN, nothing), nothing,
        nothing, nothing, nothing, nothing, _blank(size), refused, assumed)


def _blank(size: int) -> Texts:
    """Return empty words that the longest verdict and provenance fit into."""
    return np.full(size, "", dtype="<U12")
