"""Measured peaks: medians by kind of figure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from predictor.datasets.memory import MemoryRows, read_memory
from predictor.step.predict import StepPredictions, predict_steps

pytestmark = pytest.mark.reference


@pytest.fixture
def measured(reference: Path) -> tuple[MemoryRows, StepPredictions]:
    rows = read_memory(reference / "memory" / "measured_memory.csv")
    return rows, predict_steps(rows.jobs, rows.strategies)


@pytest.mark.parametrize(("kind", "last", "column", "bar", "rows"), [
    ("allocated", False, "peak_bytes", 0.12, 30),
    ("allocated", True, "last_rank_bytes", 0.15, 25),
    ("reserved", False, "reserved_bytes", 0.15, 35)])
def test_median_error_of_every_kind(measured, kind, last, column, bar, rows):
    table, found = measured
    chosen = (np.array(table.mem_kind) == kind) & (np.array(table.last_rank) == last)
    errors = np.abs(getattr(found, column) / np.array(table.measured_bytes) - 1)[chosen]
    errors = errors[np.isfinite(errors)]
    assert len(errors) >= rows
    assert np.median(errors) <= bar


def test_few_runs_that_fitted_are_said_not_to_fit(measured):
    """Every row holds a measured peak, so the run fitted: does-not-fit is a false alarm."""
    _, found = measured
    predicted = found.verdict[found.verdict != ""]
    assert np.mean(predicted == "does-not-fit") < 0.1
