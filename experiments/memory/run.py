"""Score the memory model on measured peaks and record the result.

Usage: python -m experiments.memory.run [--check]

Reads ``memory/measured_memory.csv`` and ``memory/megatron_ci_memory.csv`` below
PREDICT_TIME_REFERENCE (default ../shared/data), predicts every row from its configuration alone,
prints the scores by kind of figure with the ten worst configurations of each, and writes
results.json. ``--check`` compares with the recorded result instead and fails when a score is worse
by more than the stated slack.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.memory.functional_tests import read_functional_tests
from experiments.scoreboard import REFERENCE, Board, arguments, compared, finish, summary
from predictor.datasets.memory import read_memory
from predictor.step.predict import predict_steps

HERE = Path(__file__).parent
TABLE = "memory/measured_memory.csv"
TESTS_TABLE = "memory/megatron_ci_memory.csv"
SLACK_PERCENT = 0.5
"""Points a recorded median may get worse by before the check fails."""
WORST = 10
CAUSES = (
    ("torchtitan issue", "guess: how layers are shared over the stages"),
    ("llama3-8b_h200", "its release of 2025 compiles the loss too"),
    ("bigscience", "nvidia-smi of DeepSpeed in 2022: not explained, too light throughout"),
    ("nemo-mbridge-perf-activation", "rank 0, not the peak rank; CUDA graphs (guess: their pools)"),
    ("nemo-mbridge-perf-memory", "guess: fp8 copies of weights and of recomputed inputs"),
    ("seq131072", "the row's runs fuse the loss, which no column says"),
    ("z3_", "guess: Megatron-FSDP's buckets are not whole layers"),
    ("vp1_", "guess: overlapped transfers hold one more micro-batch"),
    ("nemotron", "guess: the list of tensors that a hybrid layer keeps"),
)
"""What is known, or guessed, about sources that stand out, for people who read the table."""


def cause(source: str) -> str:
    """Return what is known about an outlier."""
    return next((text for words, text in CAUSES if words in source), "")


def measure() -> tuple[Board, pd.DataFrame]:
    """Return the scoreboard and the rows behind it."""
    read = read_memory(REFERENCE / TABLE)
    found = predict_steps(read.jobs, read.strategies)
    last = np.array(read.last_rank)
    names = np.array(read.mem_kind).astype(object)
    kind = np.where(last & (names == "allocated"), "allocated last rank", names)
    frame = read.frame.loc[list(read.row_index)].copy()
    frame["kind"] = kind
    frame["measured_gib"] = np.array(read.measured_bytes) / 2**30
    frame["predicted_gib"] = np.select(
        [kind == "allocated", kind == "allocated last rank", kind == "reserved"],
        [found.peak_bytes, found.last_rank_bytes, found.reserved_bytes],
        found.device_bytes) / 2**30
    frame["error"] = frame["predicted_gib"] / frame["measured_gib"] - 1
    scored = pd.concat([frame[frame["error"].notna()], functional_tests()], ignore_index=True)
    reasons = Counter(
        problem.rule for _, problems in (*read.refused, *found.refused) for problem in problems)
    board = {
        "by_kind": {str(name): summary(group["error"]) for name, group in scored.groupby("kind")},
        "refused": len(read.refused) + len(found.refused),
        "refused_by_rule": dict(sorted(reasons.items()))}
    return board, scored


def functional_tests() -> pd.DataFrame:
    """Return the errors on Megatron-LM's functional tests, whose attention is known."""
    frame, jobs, strategies = read_functional_tests(REFERENCE / TESTS_TABLE)
    frame["kind"], frame["model"] = "allocated last rank, attention known", frame["case"]
    frame["measured_gib"] = frame["mem_max_alloc_GiB"]
    frame["predicted_gib"] = predict_steps(jobs, strategies).last_rank_bytes / 2**30
    frame["error"] = frame["predicted_gib"] / frame["measured_gib"] - 1
    return frame[frame["error"].notna()]


def show(board: Board, frame: pd.DataFrame) -> None:
    """Print the scoreboard and the worst configurations of every kind."""
    print(json.dumps(board, indent=1))
    for kind, group in frame.groupby("kind"):
        worst = group.reindex(group["error"].abs().sort_values(ascending=False).index)
        worst = worst.drop_duplicates(["model", "predicted_gib"]).head(WORST)
        print(f"\n{kind}: measured and predicted GiB, error")
        for row in worst.itertuples():
            print(f"  {row.measured_gib:7.1f} {row.predicted_gib:7.1f} {100 * row.error:+6.0f} %  "
                  f"{row.model[:44]:44}  tp {row.tp:.0f} pp {row.pp:.0f}  {cause(row.source)}")


def worse(board: Board, recorded: Board) -> list[str]:
    """Return the kinds that got worse, or lost rows, against the recorded result."""
    problems = []
    for kind, then in recorded["by_kind"].items():
        now = board["by_kind"].get(kind, {"rows": 0, "median_ape": np.inf})
        problems += compared(kind, now["median_ape"], then["median_ape"], SLACK_PERCENT)
        problems += compared(f"{kind}, rows lost", then["rows"] - now["rows"], 0, 0)
    return problems


def main() -> int:
    """Run the experiment."""
    chosen = arguments(__doc__).parse_args()
    board, frame = measure()
    show(board, frame)
    return finish(HERE, board, [TABLE, TESTS_TABLE], check=chosen.check, worse=worse)


if __name__ == "__main__":
    sys.exit(main())
