"""Predictions of two thousand generated jobs change only on purpose (see tests/golden.py)."""

from __future__ import annotations

import golden
import numpy as np


def test_predictions_are_the_recorded_ones() -> None:
    recorded = np.loadtxt(golden.FILE, delimiter=",", skiprows=1)
    assert recorded.shape == (golden.COUNT, 2)
    np.testing.assert_allclose(golden.predictions(), recorded, rtol=1e-6)
