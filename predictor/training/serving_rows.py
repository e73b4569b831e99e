"""Answers for rows of kernels that come over a serving interface."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from predictor.datasets.kernels import measurements
from predictor.spec.errors import InputError
from predictor.timing.device import Regime
from predictor.timing.learned import LearnedTimer, Provenance
from predictor.training.learning_rows import conditions_of

if TYPE_CHECKING:
    import pandas as pd

    from predictor.bundle import Bundle

LEVEL = 0.9
DEFAULTS: dict[str, str | float] = {"timing_kind": "graph", "pass": "fwd", "batch": 1.0,
                                    "latency_s": 1.0}
"""What a row that leaves these out means; any time will do for a row that asks for it."""


def predict_rows(bundle: Bundle, frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row per row of ``frame``: seconds, the 90 % interval and what they rest on.

    Columns are those of :mod:`predictor.datasets.kernel_schema`, the time left out. The seconds
    are those of a kernel alone, as a benchmark measures them.

    Raises
    ------
    InputError
        When a column is unknown or a row cannot be read, with the reason of each.
    """
    import pandas as pd

    asked = frame.reset_index(drop=True)
    for name, value in DEFAULTS.items():
        if name in asked:
            asked[name] = asked[name].replace("", None).fillna(value)
        else:
            asked.insert(0, name, value)
    found = measurements(asked)
    if found.refused:
        raise InputError.of("kernel-rows", "; ".join(
            f"row {row}: {why}" for row, why in found.refused[:20]), "correct these rows")
    answer = LearnedTimer(bundle.models).estimate_kernels(
        found.table, found.gpus, regime=Regime.ISOLATED, conditions=conditions_of(found),
        level=LEVEL)
    worst = np.zeros(len(found), dtype=np.int64)
    np.maximum.at(worst, found.measurement, answer.provenance)
    return pd.DataFrame({
        "seconds": found.sum_s(answer.seconds), "low_s": found.sum_s(answer.low_s),
        "high_s": found.sum_s(answer.high_s),
        "provenance": [Provenance(code).name.lower() for code in worst.tolist()]})
