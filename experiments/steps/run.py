"""Score the analytic step times on published training steps and record the result.

Usage: python experiments/steps/run.py [--check]

Reads ``steps/published_steps.csv`` below PREDICT_TIME_REFERENCE (default ../shared/data), predicts
every row from its configuration alone, prints a table by family with the ten worst rows, and
writes results.json. ``--check`` compares with the recorded result instead and fails when a score
is worse by more than the stated slack.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

from predictor.datasets.steps import read_steps
from predictor.step.predict import predict_steps

HERE = Path(__file__).parent
REFERENCE = Path(os.environ.get("PREDICT_TIME_REFERENCE", HERE.parents[1] / "../shared/data"))
SLACK_PERCENT = 0.5
"""Points a recorded score may get worse by before the check fails."""
WORST = 10


def score(errors: pd.Series) -> dict[str, float]:
    """Return the scores of signed relative errors, in percent."""
    return {
        "rows": len(errors),
        "mape": round(100 * float(errors.abs().mean()), 2),
        "median_ape": round(100 * float(errors.abs().median()), 2),
        "bias": round(100 * float(errors.mean()), 2),
        "max_ape": round(100 * float(errors.abs().max()), 2),
    }


def measure() -> tuple[dict[str, object], pd.DataFrame]:
    """Return the scoreboard and the rows behind it."""
    began = time.perf_counter()
    read = read_steps(REFERENCE / "steps" / "published_steps.csv")
    found = predict_steps(read.jobs, read.strategies)
    seconds = time.perf_counter() - began
    frame = read.frame.loc[list(read.row_index)].copy()
    frame["predicted"] = found.step_time_s
    for name, column in found.breakdown.items():
        frame[name] = column
    frame["error"] = frame["predicted"] / frame["step_time_s"].astype(float) - 1
    frame["verdict"] = found.verdict
    scored = frame[frame["error"].notna() & frame["tier"].isin(["A", "B"])]
    pretrain = scored[scored["workload"].str.startswith("pretrain")]
    by_family = {str(name): score(group["error"]) for name, group in pretrain.groupby("family")}
    board: dict[str, object] = {
        "all_pretrain": score(pretrain["error"]),
        "family_mean_mape": round(float(np.mean([s["mape"] for s in by_family.values()])), 2),
        "by_family": by_family,
        "vtrain_multi_node": score(multi_node(pretrain)["error"]),
        "korthikanti": score(korthikanti(pretrain)["error"]),
        "refused": len(read.refused) + len(found.refused),
        "rows_per_second": round(len(read.frame) / seconds),
    }
    return board, pretrain


def multi_node(frame: pd.DataFrame) -> pd.DataFrame:
    """Return vTrain's runs on more than one node of eight GPUs."""
    return frame[(frame["family"] == "vtrain") & (frame["num_gpus"].astype(int) > 8)]


def korthikanti(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the eight runs of arXiv 2205.05198, table 5."""
    return frame[frame["source_ref"].astype(str).str.contains("2205.05198")]


def show(board: dict[str, object], frame: pd.DataFrame) -> None:
    """Print the scoreboard and the worst rows."""
    print(json.dumps(board, indent=1))
    columns = ["id", "family", "gpu", "num_gpus", "model_name", "tp", "pp", "dp", "micro_batch",
               "step_time_s", "predicted", "error"]
    worst = frame.reindex(frame["error"].abs().sort_values(ascending=False).index)
    print(worst[columns].head(WORST).to_string())


def worse(board: dict[str, object], recorded: dict[str, object]) -> list[str]:
    """Return what got worse than the recorded result by more than the slack."""
    pairs = [("family_mean_mape", board["family_mean_mape"], recorded["family_mean_mape"])]
    for name in ("all_pretrain", "vtrain_multi_node", "korthikanti"):
        pairs.append((name, board[name]["mape"], recorded[name]["mape"]))  # type: ignore[index]
    return [f"{name}: {now} against {then} recorded" for name, now, then in pairs
            if now > then + SLACK_PERCENT]  # type: ignore[operator]


def main() -> int:
    """Run the experiment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    chosen = parser.parse_args()
    board, frame = measure()
    show(board, frame)
    results = HERE / "results.json"
    if chosen.check:
        problems = worse(board, json.loads(results.read_text()))
        print("\n".join(problems) or "no score got worse")
        return 1 if problems else 0
    results.write_text(json.dumps(board, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
