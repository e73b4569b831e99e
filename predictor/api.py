"""Predictions as the command makes them: with the learned predictor that comes with the package.

:mod:`predictor.step.predict` is the same without a default: it opens no files.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from predictor.bundle import open_bundle
from predictor.catalog.data import default_predictor
from predictor.step import predict
from predictor.timing.learned import LearnedTimer

if TYPE_CHECKING:
    from predictor.spec.job import TrainingJob
    from predictor.spec.strategy import Strategy
    from predictor.step.calibration import Calibration
    from predictor.step.compose import Timer
    from predictor.step.predict import StepPrediction, StepPredictions


@cache
def default_timer() -> LearnedTimer:
    """Return the learned predictor of this installation, opened once.

    Raises
    ------
    InputError
        When there is none or it is damaged.
    """
    return LearnedTimer(open_bundle(default_predictor()).models)


def predict_step(
    job: TrainingJob, strategy: Strategy, *, timer: Timer | None = None,
    calibration: Calibration | None = None,
) -> StepPrediction:
    """Return the step time, memory and their breakdown for one strategy.

    ``timer`` replaces the default predictor, for example
    :class:`predictor.timing.analytic.AnalyticTimer`; ``calibration`` corrects the times of the
    GPU that it was fitted on, beside that timer.

    Raises
    ------
    InputError
        With every rule of the target framework that the strategy breaks, or when the default
        predictor cannot be opened.
    """
    return predict.predict_step(job, strategy, timer=timer or default_timer(),
                                calibration=calibration)


def predict_steps(
    jobs: Sequence[TrainingJob], strategies: Sequence[Strategy], *, timer: Timer | None = None,
    calibration: Calibration | None = None,
) -> StepPredictions:
    """Return the predictions for pairs of ``jobs`` and ``strategies``, all in one pass.

    A pair that breaks a rule is refused with its reasons; the others are unaffected.

    Raises
    ------
    InputError
        When the default predictor cannot be opened.
    """
    return predict.predict_steps(jobs, strategies, timer=timer or default_timer(),
                                 calibration=calibration)
