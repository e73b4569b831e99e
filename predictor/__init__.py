"""Predict the step time and memory of distributed training before it is launched."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from predictor.api import predict_step, predict_steps
    from predictor.spec.errors import InputError
    from predictor.spec.job import TrainingJob
    from predictor.spec.strategy import Strategy

__all__ = ["InputError", "Strategy", "TrainingJob", "predict_step", "predict_steps"]

_HOMES = {
    "InputError": "predictor.spec.errors", "Strategy": "predictor.spec.strategy",
    "TrainingJob": "predictor.spec.job", "predict_step": "predictor.api",
    "predict_steps": "predictor.api",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for, and nothing else: the command starts in a tenth of a second."""
    if name not in _HOMES:
        raise AttributeError(f"module 'predictor' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
