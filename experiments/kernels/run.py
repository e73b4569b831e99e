"""Score the analytic kernel times on measured kernels and record the result.

Usage: python -m experiments.kernels.run [--check] [--aiconfigurator FOLDER]

Reads the tables of ``kernels/`` below PREDICT_TIME_REFERENCE (default ../shared/data), predicts
every kernel as a benchmark runs it, prints a scoreboard by family, GPU and source with the worst
rows, and writes results.json. ``--aiconfigurator`` adds the GEMM and attention timings of the
installed package's ``systems/data`` folder. ``--check`` compares the reference tables' scores with
the recorded ones instead.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.kernels.sources import all_sources
from experiments.scoreboard import REFERENCE, Board, arguments, compared, finish
from predictor.datasets.kernels import KernelMeasurements, read_kernels
from predictor.timing.device import Regime
from predictor.timing.kernels import kernel_times

HERE = Path(__file__).parent
TABLE = "kernels/kernels_long.parquet"
FAMILIES = {"linear": "gemm", "linear_bias": "gemm", "gemm": "gemm", "bmm": "batched gemm",
            "grouped_gemm": "grouped gemm", "attention": "attention", "layernorm": "norm",
            "rmsnorm": "norm", "softmax": "softmax"}
HELD_OUT = {"vidur"}
"""Sources that no constant was chosen on; all others informed at least one."""
SLACK_PERCENT = 0.5
WORST = 10


def measure(folder: Path | None) -> tuple[Board, pd.DataFrame]:
    """Return the scoreboard and the rows behind it."""
    frames = all_sources(REFERENCE / "kernels", folder)
    read = [read_kernels(frame.reset_index(drop=True)) for frame in frames]
    rows = pd.concat([predicted(one) for one in read], ignore_index=True)
    refused: dict[str, int] = {}
    for one in read:
        for why, count in one.refusals().items():
            refused[why] = refused.get(why, 0) + count
    groups = rows.groupby(["family", "gpu", "source", "dtype", "pass"])
    board: Board = {
        "refused": refused,
        "groups": {" | ".join(name): score(group) for name, group in groups}}
    return board, rows


def predicted(read: KernelMeasurements) -> pd.DataFrame:
    """Return one row per measurement with its prediction."""
    seconds = read.sum_s(kernel_times(read.table, read.gpus, Regime.ISOLATED))
    first = np.unique(read.measurement, return_index=True)[1]
    table = read.table.take(first)
    frame = pd.DataFrame({
        "op": read.op, "source": read.source, "gpu": read.gpu, "measured": read.measured_s,
        "predicted": seconds, "m": table.m, "n": table.n, "k": table.k, "batch": table.batch})
    frame["family"] = frame["op"].map(FAMILIES).fillna("elementwise")
    frame["dtype"] = [("fp32", "tf32", "fp16", "bf16", "fp8", "fp4")[one] for one in table.dtype]
    frame["pass"] = np.where(table.phase > 0, "bwd", "fwd")
    frame["error"] = frame["predicted"] / frame["measured"] - 1
    return frame


def score(group: pd.DataFrame) -> Board:
    """Return the scores of one group, in percent. ``time_bias`` weighs rows by their time."""
    error = group["error"]
    return {
        "rows": len(error), "median_ape": round(100 * float(error.abs().median()), 1),
        "bias": round(100 * float(error.mean()), 1),
        "time_bias": round(
            100 * float(group["predicted"].sum() / group["measured"].sum() - 1), 1),
        "held_out": group["source"].iloc[0] in HELD_OUT}


def show(board: Board, rows: pd.DataFrame) -> None:
    """Print the scoreboard and the worst rows of each family."""
    print(json.dumps(board["refused"], indent=1))
    print(pd.DataFrame(board["groups"]).T.to_string())
    for family, group in rows.groupby("family"):
        off = np.log(group["predicted"] / group["measured"]).abs()
        print(f"\nworst of {family}")
        print(group.loc[off.sort_values(ascending=False).index[:WORST]].to_string())


def worse(board: Board, recorded: Board) -> list[str]:
    """Return the groups of both boards whose score got worse by more than the slack."""
    then, now = recorded["groups"], board["groups"]
    return [line for name in now if name in then for line in compared(
        name, now[name]["median_ape"], then[name]["median_ape"], SLACK_PERCENT)]


def main() -> int:
    """Run the experiment."""
    parser = arguments(__doc__)
    parser.add_argument("--aiconfigurator", type=Path)
    chosen = parser.parse_args()
    board, rows = measure(chosen.aiconfigurator)
    pd.set_option("display.width", 200)
    show(board, rows)
    return finish(HERE, board, [TABLE], check=chosen.check, worse=worse)


if __name__ == "__main__":
    sys.exit(main())
