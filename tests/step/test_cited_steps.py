"""172 published training steps, each cited in its row, against a recorded error."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from predictor.datasets.steps import read_steps
from predictor.step.predict import StepPredictions, predict_steps

TABLE = Path(__file__).parent / "cited_steps.csv"
RECORDED = {
    "arXiv 2205.05198 table 5": 2.5, "arXiv 2104.04473 table 1": 6.0,
    "Megatron-LM README 2020": 6.2, "arXiv 2401.10241 table 4": 11.9,
    "torchtitan benchmarks/ b5bcd76": 11.9, "DLPerf GPT report 2021-05-12": 13.4,
    "SimuMax docs/b200 v1.2": 4.3, "arXiv 2104.04473 table 2": 30.0,
}
"""Mean absolute error of each source in percent when it was last measured."""
SLACK = 1.0
"""Points by which a source may get worse before someone must look."""


@pytest.fixture(scope="module")
def errors() -> tuple[list[str], np.ndarray, StepPredictions]:
    rows = read_steps(TABLE)
    assert rows.refused == ()
    found = predict_steps(rows.jobs, rows.strategies)
    measured = rows.frame["step_time_s"].to_numpy(dtype=float)
    return list(rows.frame["citation"]), 100 * (found.step_time_s / measured - 1), found


def test_every_cited_row_is_predicted(
    errors: tuple[list[str], np.ndarray, StepPredictions]
) -> None:
    citations, error, found = errors
    assert len(citations) >= 150
    assert found.refused == ()
    assert np.isfinite(error).all()


@pytest.mark.parametrize("citation", sorted(RECORDED))
def test_no_source_gets_worse(
    citation: str, errors: tuple[list[str], np.ndarray, StepPredictions]
) -> None:
    citations, error, _ = errors
    mine = error[np.array(citations) == citation]
    assert np.abs(mine).mean() <= RECORDED[citation] + SLACK


def test_korthikanti_within_six_percent_and_none_above_twelve(
    errors: tuple[list[str], np.ndarray, StepPredictions]
) -> None:
    citations, error, _ = errors
    eight = np.abs(error[np.array(citations) == "arXiv 2205.05198 table 5"])
    assert len(eight) == 8
    assert eight.mean() <= 6.0
    assert eight.max() <= 12.0


def test_the_table_only_holds_what_is_known_before_a_run() -> None:
    with TABLE.open(encoding="utf-8", newline="") as file:
        columns = next(csv.reader(file))
    assert {"mfu", "tokens_per_s_per_gpu", "model_tflops_per_gpu"}.isdisjoint(columns)
