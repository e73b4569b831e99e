"""What every scoreboard shares: where tables lie, how scores are recorded and compared."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

ROOT = Path(__file__).parents[1]
REFERENCE = Path(os.environ.get("PREDICT_TIME_REFERENCE", ROOT / "../shared/data"))
GOLDEN = ROOT / "tests" / "golden.csv"
"""Predictions of generated jobs: its digest stands for the core, and changes when answers do."""

Board = dict[str, Any]


def summary(errors: pd.Series) -> dict[str, float]:
    """Return the scores of signed relative errors, in percent."""
    size = errors.abs()
    scores = {"mape": size.mean(), "median_ape": size.median(), "bias": errors.mean(),
              "max_ape": size.max()}
    return {"rows": len(errors)} | {
        name: round(100 * float(value), 2) for name, value in scores.items()}


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Return the options that every scoreboard takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--check", action="store_true",
                        help="compare with the recorded scores instead of recording")
    return parser


def finish(here: Path, board: Board, tables: list[str], *, check: bool,
           worse: Callable[[Board, Board], list[str]]) -> int:
    """Record the board with what it was made from, or report what got worse; the exit code."""
    results = here / "results.json"
    if check:
        problems = worse(board, json.loads(results.read_text()))
        print("\n".join(problems) or "no score got worse")
        return 1 if problems else 0
    made_from = {"core": digest(GOLDEN),
                 "tables": {name: digest(REFERENCE / name) for name in tables}}
    results.write_text(json.dumps({**board, "made_from": made_from}, indent=1) + "\n")
    return 0


def compared(name: str, now: float, then: float, slack: float) -> list[str]:
    """Return a line when a score is worse than the recorded one by more than the slack."""
    return [f"{name}: {now} against {then} recorded"] if now > then + slack else []
