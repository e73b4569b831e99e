"""Score the analytic collective times on public measurements and record the result.

Usage: python -m experiments.collectives.run [--check]

Reads ``collectives/collectives.parquet`` below PREDICT_TIME_REFERENCE (default ../shared/data),
prints scores by place, size, source and collective with the worst rows, and writes results.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.scoreboard import REFERENCE, Board, arguments, compared, finish
from predictor.datasets.collectives import read_collectives
from predictor.lowering.tables import LINK_KINDS, CollectiveKind
from predictor.timing.collectives import collective_times

HERE = Path(__file__).parent
TABLE = "collectives/collectives.parquet"
SLACK_PERCENT = 0.5
"""Points a recorded median may get worse by before the check fails."""
LOOKED_AT = ("aiconfigurator_nccl", "xxrjun_nccl_tests_cluster", "alcf_nccl_tests")
"""Sources that constants were read off; the others are unseen."""
LARGE_BYTES = 2.0**20
BANDS = {"under 64 KiB": 2**16, "64 KiB to 1 MiB": 2**20, "1 to 16 MiB": 2**24,
         "16 to 256 MiB": 2**28, "256 MiB and more": 2**60}
WORST = 10


def score(rows: pd.DataFrame) -> dict[str, float]:
    """Return the scores of ``rows`` in percent."""
    error = 100 * (rows.predicted_s / rows.measured_s - 1)
    return {"rows": len(rows), "median_ape": round(float(error.abs().median()), 1),
            "mape": round(float(error.abs().mean()), 1), "bias": round(float(error.mean()), 1)}


def by(rows: pd.DataFrame, *columns: str) -> dict[str, dict[str, float]]:
    """Return the scores of every group of ``rows``."""
    return {" / ".join(map(str, key)): score(group)
            for key, group in rows.groupby(list(columns), observed=True)}


def measure() -> tuple[pd.DataFrame, dict[str, int]]:
    """Return measured and predicted seconds of every row, and what was refused."""
    found = read_collectives(REFERENCE / TABLE)
    table = found.table
    intra = found.networks.intra_kind[table.network]
    edges = [0.0, *[edge - 0.5 for edge in BANDS.values()]]
    rows = pd.DataFrame({
        "source": found.source, "system": found.system, "ranks": table.group_size,
        "collective": [CollectiveKind(kind).name.lower() for kind in table.kind],
        "nodes": found.nodes, "links": [LINK_KINDS[kind] for kind in intra], "bytes": table.bytes,
        "measured_s": found.measured_s, "predicted_s": collective_times(table, found.networks)})
    rows["place"] = np.where(rows.nodes > 1, "across nodes", "inside a node")
    rows["seen"] = np.where(rows.source.isin(LOOKED_AT), "looked at", "unseen")
    rows["size"] = pd.cut(rows.bytes, edges, labels=list(BANDS))
    return rows, found.refusals()


def scoreboard(rows: pd.DataFrame, refused: dict[str, int]) -> Board:
    """Return the scores and the worst groups of rows."""
    large = rows[rows.bytes >= LARGE_BYTES]
    factor = np.log(large.predicted_s / large.measured_s).abs()
    groups = ["source", "system", "collective", "nodes", "ranks"]
    worst = large.loc[factor.groupby([large[name] for name in groups]).idxmax()]
    worst = worst.loc[factor[worst.index].sort_values(ascending=False).index[:WORST]]
    return {
        "refused": refused,
        "from 1 MiB": by(large, "place"),
        "from 1 MiB, by seen": by(large, "place", "seen"),
        "all sizes": by(rows, "place"),
        "by size": by(rows, "place", "size"),
        "from 1 MiB, by link": by(large, "place", "links"),
        "from 1 MiB, by source": by(large, "place", "source", "collective"),
        "worst groups": [{name: str(row[name]) for name in groups} | {
            "bytes": float(row.bytes), "measured_us": round(1e6 * row.measured_s, 1),
            "predicted_us": round(1e6 * row.predicted_s, 1)} for _, row in worst.iterrows()],
    }


def worse(board: Board, recorded: Board) -> list[str]:
    """Return what got worse than the recorded result by more than the slack."""
    return [line for part in ("from 1 MiB", "all sizes") for name, then in recorded[part].items()
            for line in compared(f"{part}, {name}", board[part][name]["median_ape"],
                                 then["median_ape"], SLACK_PERCENT)]


def main() -> int:
    """Run the experiment."""
    chosen = arguments(__doc__).parse_args()
    board = scoreboard(*measure())
    print(json.dumps(board, indent=1))
    return finish(HERE, board, [TABLE], check=chosen.check, worse=worse)


if __name__ == "__main__":
    sys.exit(main())
