"""Recorded scores belong to this core, and none has become worse."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import golden
import pytest

ROOT = Path(__file__).parents[1]
BOARDS = ("collectives", "kernels", "memory", "steps")


def recorded(board: str) -> dict:
    return json.loads((ROOT / "experiments" / board / "results.json").read_text())


@pytest.mark.parametrize("board", BOARDS)
def test_scores_were_recorded_with_this_core(board):
    core = hashlib.sha256(golden.FILE.read_bytes()).hexdigest()
    assert recorded(board)["made_from"]["core"] == core, (
        f"predictions changed: run python -m experiments.{board}.run")


def test_steps_were_scored_with_the_predictor_that_ships():
    manifest = json.loads((ROOT / "data" / "model" / "manifest.json").read_text())
    assert recorded("steps")["learned"]["predictor"] == manifest["digest"], (
        "the bundle changed: run python -m experiments.steps.run")


@pytest.mark.e2e
@pytest.mark.parametrize("board", BOARDS)
def test_no_score_is_worse_than_recorded(board, reference):
    done = subprocess.run(
        [sys.executable, "-m", f"experiments.{board}.run", "--check"], cwd=ROOT, check=False,
        capture_output=True, text=True, env=os.environ | {"PREDICT_TIME_REFERENCE": str(reference)})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.parametrize("board", BOARDS)
def test_tables_are_the_ones_that_were_scored(board, reference):
    for name, digest in recorded(board)["made_from"]["tables"].items():
        assert hashlib.sha256((reference / name).read_bytes()).hexdigest() == digest
