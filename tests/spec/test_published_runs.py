"""Real runs are legal: what a rule refuses among them contradicts itself in its source."""

from __future__ import annotations

from predictor.datasets.steps import read_steps
from predictor.spec.resolve import resolve
from predictor.spec.rules import check_strategy

MOST_REFUSED = 0.012
"""1.0 % measured: rows whose batch does not divide, whose expert grid is larger than a stage, or
that overlap parameter gathering without saying that anything is sharded."""


def test_published_runs_are_legal(reference):
    rows = read_steps(reference / "steps" / "published_steps.csv")
    refused = []
    for job, strategy, label in zip(rows.jobs, rows.strategies, rows.row_index, strict=True):
        job, strategy, _ = resolve(job, strategy)
        refused += [label] if check_strategy(job, strategy) else []
    assert len(refused) <= MOST_REFUSED * len(rows.jobs), refused
