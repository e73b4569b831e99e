"""Score step times on published training steps, analytic and with the default predictor.

Usage: python -m experiments.steps.run [--check]

Reads ``steps/published_steps.csv`` below PREDICT_TIME_REFERENCE (default ../shared/data), predicts
every row from its configuration alone, prints a table by family with the ten worst rows, and
writes results.json. ``--check`` compares with the recorded result instead and fails when a score
is worse by more than the stated slack.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.scoreboard import REFERENCE, Board, arguments, compared, finish, summary
from predictor.bundle import open_bundle
from predictor.catalog.data import model_folder
from predictor.datasets.steps import read_steps
from predictor.step.predict import predict_steps
from predictor.timing.learned import LearnedTimer

HERE = Path(__file__).parent
TABLE = "steps/published_steps.csv"
SLACK_PERCENT = 0.5
"""Points a recorded score may get worse by before the check fails."""
WORST = 10


def measure() -> tuple[Board, pd.DataFrame]:
    """Return the scoreboard and the rows behind it: analytic, and as learned by the bundle."""
    bundle = open_bundle(model_folder())
    board, _ = scores(None)
    board["learned"], rows = scores(LearnedTimer(bundle.models))
    board["learned"]["predictor"] = bundle.digest
    return board, rows


def scores(timer: LearnedTimer | None) -> tuple[Board, pd.DataFrame]:
    """Return the scores of one predictor and the rows behind them."""
    began = time.perf_counter()
    read = read_steps(REFERENCE / TABLE)
    found = predict_steps(read.jobs, read.strategies, timer=timer)
    seconds = time.perf_counter() - began
    frame = read.frame.loc[list(read.row_index)].copy()
    frame["predicted"] = found.step_time_s
    for name, column in found.breakdown.items():
        frame[name] = column
    frame["error"] = frame["predicted"] / frame["step_time_s"].astype(float) - 1
    frame["verdict"] = found.verdict
    scored = frame[frame["error"].notna() & frame["tier"].isin(["A", "B"])]
    pretrain = scored[scored["workload"].str.startswith("pretrain")]
    by_family = {str(name): summary(group["error"]) for name, group in pretrain.groupby("family")}
    board: Board = {
        "all_pretrain": summary(pretrain["error"]),
        "family_mean_mape": round(float(np.mean([s["mape"] for s in by_family.values()])), 2),
        "by_family": by_family,
        "vtrain_multi_node": summary(multi_node(pretrain)["error"]),
        "korthikanti": summary(korthikanti(pretrain)["error"]),
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


def show(board: Board, frame: pd.DataFrame) -> None:
    """Print the scoreboard and the worst rows."""
    print(json.dumps(board, indent=1))
    columns = ["id", "family", "gpu", "num_gpus", "model_name", "tp", "pp", "dp", "micro_batch",
               "step_time_s", "predicted", "error"]
    worst = frame.reindex(frame["error"].abs().sort_values(ascending=False).index)
    print(worst[columns].head(WORST).to_string())


def worse(board: Board, recorded: Board) -> list[str]:
    """Return what got worse than the recorded result by more than the slack."""
    groups = ("all_pretrain", "vtrain_multi_node", "korthikanti")
    pairs = [("analytic", board, recorded), ("learned", board["learned"], recorded["learned"])]
    return [line for kind, now, then in pairs
            for name, new, old in (
                ("family_mean_mape", now["family_mean_mape"], then["family_mean_mape"]),
                *((name, now[name]["mape"], then[name]["mape"]) for name in groups))
            for line in compared(f"{kind} {name}", new, old, SLACK_PERCENT)]


def main() -> int:
    """Run the experiment."""
    chosen = arguments(__doc__).parse_args()
    board, frame = measure()
    show(board, frame)
    return finish(HERE, board, [TABLE], check=chosen.check, worse=worse)


if __name__ == "__main__":
    sys.exit(main())
