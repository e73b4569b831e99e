"""Score the learned stage of collectives on sizes and on systems it never saw, and record it.

Usage: python -m experiments.collectives_learned.run [--check]

Reads ``collectives/collectives.parquet`` and ``kernels/estimate-train-time`` below
PREDICT_TIME_REFERENCE (default ../shared/data). Learns from sources with a permissive licence only
and prints, beside the analytic stage: message sizes held out within every system, systems held out
one by one, then whole generations of GPUs with their links, the sources that are never learned
from, and the worst rows.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiments.scoreboard import REFERENCE, Board, arguments, compared, finish
from predictor.datasets.collectives import (
    CollectiveMeasurements, learnable, read_collectives, tidy_collectives,
)
from predictor.datasets.sources import estimate_train_time_nccl
from predictor.lowering.tables import GENERATIONS, LINK_KINDS, CollectiveKind, Floats
from predictor.timing.collective_features import COLLECTIVE_FEATURES, collective_features
from predictor.timing.collectives import collective_times
from predictor.timing.groups import COLLECTIVE_GROUPS, collective_groups
from predictor.training.fit import fit
from predictor.training.learning_rows import LearningRows, cell_weights
from predictor.training.sources import PERMISSIVE

HERE = Path(__file__).parent
TABLE = "collectives/collectives.parquet"
SAMPLED = "kernels/estimate-train-time"
HELD_SHARE = 0.2
"""Of the sizes of every curve."""
MOST_PER_CURVE = 150
"""Sizes of a curve that are learned from when systems are held out, to bound the time."""
LARGE_BYTES = 2.0**20
SLACK_PERCENT = 0.5
"""Points a recorded median may get worse by before the check fails."""
WORST = 10
Flags = NDArray[np.bool_]
Rows = tuple[LearningRows, pd.DataFrame]


def measure() -> Rows:
    """Return all measured collectives as rows to learn from, and what is known of each."""
    tables = (tidy_collectives(REFERENCE / TABLE),
              estimate_train_time_nccl.read(REFERENCE / SAMPLED))
    parts = [_rows(read_collectives(table)) for table in tables]
    about = pd.concat([part[1] for part in parts], ignore_index=True)
    keys = ["source", "system", "collective", "ranks", "nodes"]
    about["curve"] = about.groupby(keys).ngroup()
    rows = _joined([part[0] for part in parts])
    weight = cell_weights(about["source"], about["system"], about["collective"])
    return replace(rows, weight=weight), about


def _rows(found: CollectiveMeasurements) -> Rows:
    table = found.table
    analytic = collective_times(table, found.networks)
    kind = np.array([CollectiveKind(kind).name.lower() for kind in table.kind], dtype=object)
    fit_to_learn = set(learnable(found).ids)
    about = pd.DataFrame({
        "source": found.source, "system": found.system, "collective": kind,
        "ranks": table.group_size, "nodes": found.nodes, "bytes": table.bytes,
        "hardware": [f"{GENERATIONS[old]} {LINK_KINDS[kind]}" for old, kind in zip(
            found.networks.generation[table.network], found.networks.intra_kind[table.network],
            strict=True)],
        "measured_s": found.measured_s, "analytic_s": analytic,
        "learnable": [row in fit_to_learn for row in found.ids],
        "permissive": np.isin(found.licence, sorted(PERMISSIVE))})
    number = np.arange(len(found))
    rows = LearningRows(
        "collectives", COLLECTIVE_FEATURES, collective_features(table, found.networks, analytic),
        analytic, np.log(found.measured_s / analytic), np.ones(len(found)),
        collective_groups(table), COLLECTIVE_GROUPS, number, found.measured_s, number,
        np.array(found.system, dtype=object), np.array(found.source, dtype=object), kind)
    return rows, about


def _joined(parts: list[LearningRows]) -> LearningRows:
    def column(name: str) -> NDArray[np.generic]:
        return np.concatenate([getattr(part, name) for part in parts])

    names = ("x", "analytic_s", "log_ratio", "weight", "group", "measured_s", "gpu", "source",
             "label")
    total = np.arange(sum(map(len, parts)))
    return replace(parts[0], measurement=total, shape=total,
                   **{name: column(name) for name in names})


def sizes_held_out(rows: LearningRows, about: pd.DataFrame) -> tuple[Flags, Floats]:
    """Return which rows have sizes drawn from their curve, and the log ratio predicted for each."""
    held = _drawn(about, lambda sizes: round(HELD_SHARE * len(sizes)))
    seen = (about["learnable"] & about["permissive"]).to_numpy() & ~held
    return held, fit(rows.take(seen)).predict(rows.x)


def held_out(rows: LearningRows, about: pd.DataFrame, key: str) -> Floats:
    """Return log ratios under models that saw no row with the same ``key``, shape (rows,)."""
    thin = _drawn(about, lambda sizes: min(len(sizes), MOST_PER_CURVE))
    seen = (about["learnable"] & about["permissive"]).to_numpy() & thin
    keys = about[key].to_numpy().astype(str)
    found = np.full(len(rows), np.nan)
    for name in np.unique(keys[seen | about["permissive"].to_numpy()]):
        at = keys == name
        found[at] = fit(rows.take(seen & ~at)).predict(rows.x[at])
    # One model of everything permissive predicts all that has no part in it.
    others = np.isnan(found)
    found[others] = fit(rows.take(seen)).predict(rows.x[others])
    return found


def _drawn(about: pd.DataFrame, count: Callable[[Floats], int]) -> Flags:
    """Return the rows of sizes that are drawn from each curve, ``count(sizes)`` of them."""
    rng = np.random.default_rng(0)
    drawn = np.zeros(len(about), dtype=bool)
    for _, curve in about.groupby("curve"):
        sizes = np.unique(curve["bytes"])
        chosen = rng.choice(sizes, count(sizes), replace=False)
        drawn[curve.index[curve["bytes"].isin(chosen)]] = True
    return drawn


def score(rows: pd.DataFrame) -> dict[str, float]:
    """Return median absolute errors in percent, learned and analytic, of all and large sizes."""
    large = rows[rows["bytes"] >= LARGE_BYTES]
    found: dict[str, float] = {"rows": len(rows), "rows_from_1_mib": len(large)}
    for name, part in (("", rows), ("_from_1_mib", large)):
        for stage in ("learned", "analytic"):
            error = 100 * (part[f"{stage}_s"] / part["measured_s"] - 1).abs()
            if len(part):
                found[f"{stage}{name}"] = round(float(error.median()), 2)
    return found


def by(rows: pd.DataFrame, *columns: str) -> dict[str, dict[str, float]]:
    """Return the scores of every group of ``rows``."""
    return {" / ".join(map(str, key)): score(group) for key, group in rows.groupby(list(columns))}


def worst(rows: pd.DataFrame) -> list[dict[str, str | float]]:
    """Return the rows from 1 MiB that are most off, one for each curve."""
    large = rows[rows["bytes"] >= LARGE_BYTES]
    factor = np.log(large["learned_s"] / large["measured_s"]).abs()
    first = factor.groupby(large["curve"]).idxmax()
    chosen = large.loc[factor[first].sort_values(ascending=False).index[:WORST]]
    names = ["source", "system", "collective", "ranks", "nodes"]
    return [{name: str(row[name]) for name in names} | {
        "bytes": float(row["bytes"])} | {
        f"{name}_us": round(1e6 * float(row[f"{name}_s"]), 1)
        for name in ("measured", "learned", "analytic")} for _, row in chosen.iterrows()]


def scoreboard(rows: LearningRows, about: pd.DataFrame) -> Board:
    """Return the scores of both ways to hold rows out."""
    held, within = sizes_held_out(rows, about)
    across = held_out(rows, about, "system")
    about = about.assign(sampled=about["source"] == estimate_train_time_nccl.SOURCE)
    ours = about["permissive"]
    sizes = about.assign(learned_s=about["analytic_s"] * np.exp(within))[held & ours]
    systems = about.assign(learned_s=about["analytic_s"] * np.exp(across))
    hardware = about.assign(
        learned_s=about["analytic_s"] * np.exp(held_out(rows, about, "hardware")))
    mine = ours & ~about["sampled"]
    public = systems[mine]
    return {
        "rows": {"scored": len(about), "permissive": int(ours.sum()),
                 "learned from": int((ours & about["learnable"]).sum())},
        "sizes held out": {
            "unflagged": score(sizes[~sizes["sampled"]]),
            "estimate-train-time": score(sizes[sizes["sampled"] & sizes["learnable"]])},
        "sizes held out, by system": by(sizes, "system"),
        "systems held out": {
            "unflagged": score(public), "unflagged and learnable": score(
                public[public["learnable"]]),
            "estimate-train-time": score(systems[systems["sampled"] & systems["learnable"]]),
            "never learned from": score(systems[~ours])},
        "hardware held out": {"unflagged": score(hardware[mine])},
        "hardware held out, by hardware": by(hardware[mine], "hardware"),
        "systems held out, by system": by(systems[ours], "system"),
        "never learned from, by system": by(systems[~ours], "system"),
        "worst sizes": worst(sizes[~sizes["sampled"]]),
        "worst rows of unseen systems": worst(public),
        "worst rows never learned from": worst(systems[~ours]),
    }


def worse(board: Board, recorded: Board) -> list[str]:
    """Return what got worse than the recorded result by more than the slack."""
    return [line for part in ("sizes held out", "systems held out", "hardware held out")
            for name, then in recorded[part].items() for key in ("learned", "learned_from_1_mib")
            for line in compared(f"{part}, {name}, {key}", board[part][name][key], then[key],
                                 SLACK_PERCENT)]


def main() -> int:
    """Run the experiment."""
    chosen = arguments(__doc__).parse_args()
    board = scoreboard(*measure())
    print(json.dumps(board, indent=1))
    return finish(HERE, board, [TABLE], check=chosen.check, worse=worse)


if __name__ == "__main__":
    sys.exit(main())
