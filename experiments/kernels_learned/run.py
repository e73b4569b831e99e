"""Score the learned kernel times on shapes, GPUs and models they never saw.

Usage: python -m experiments.kernels_learned.run [part ...]

Parts: gemm, gpus, regressor, attention, speed. Every part but the last fits the shipped settings
on what is not held out and scores the rest, beside the analytic model on the same rows. Reads the
tables below PREDICT_TIME_REFERENCE (default ../shared/data) and the package aiconfigurator_core;
writes the parts that ran into results.json.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.scoreboard import GOLDEN, REFERENCE, digest
from predictor.bundle import open_bundle
from predictor.catalog import load_gpu
from predictor.catalog.data import model_folder
from predictor.datasets.kernels import KernelMeasurements, measurements
from predictor.datasets.physical import far_from_hardware, reasons
from predictor.datasets.sources import aiconfigurator, cudnn_frontend, estimate_train_time
from predictor.lowering.tables import Dtype, GpuTable, KernelTable
from predictor.timing.learned import LearnedTimer
from predictor.training.conformal import grouped_widths
from predictor.training.fit import fit, fold_of, residuals
from predictor.training.learning_rows import LearningRows, host_bound, kernel_rows
from predictor.training.sources import KERNEL_SOURCES, kernel_tables

HERE = Path(__file__).parent
HOPPER = ("h100-sxm", "h200-sxm", "gh200-96gb")
BLACKWELL = ("b200-sxm", "b300-sxm", "gb200", "gb300")
HELD_PAIRS = 0.1
SPLITS = 10
FEWEST = 300
WIDEST_SEEN = 6656
Board = dict[str, Any]


def errors(rows: LearningRows, residual: np.ndarray) -> Board:
    """Return the scores of each measurement once, learned and analytic, in percent."""
    once = np.unique(rows.measurement, return_index=True)[1]
    learned = np.abs(np.expm1(-residual[once]))
    analytic = np.abs(np.expm1(-rows.log_ratio[once]))
    return {"rows": len(once), "mape": percent(learned.mean()),
            "median_ape": percent(np.median(learned)), "analytic_mape": percent(analytic.mean()),
            "analytic_median_ape": percent(np.median(analytic))}


def percent(value: float) -> float:
    return round(100 * float(value), 2)


def scored(rows: LearningRows, held: np.ndarray, **settings: Any) -> tuple[Board, np.ndarray]:
    """Fit what is not held out, return the scores of the rest and its residuals."""
    test = rows.take(held)
    residual = residuals(test, fit(rows.take(~held), **settings))
    return errors(test, residual), residual


def clean(frame: pd.DataFrame) -> KernelMeasurements:
    found = measurements(frame)
    found = found.without(reasons(found))
    return found.without(far_from_hardware(found))


def bf16_gemms() -> tuple[LearningRows, np.ndarray]:
    """Return every bf16 product of aiconfigurator and the shape of its weights."""
    frame = aiconfigurator.read(aiconfigurator.package_folder(), ("gemm",))
    rows = kernel_rows(clean(frame[frame["dtype"] == "bf16"].reset_index(drop=True)))["gemm"]
    assert (rows.column("dtype") == Dtype.BF16).all()
    weights = rows.column("n").astype(np.float64) * 1000 + rows.column("k")
    return rows, weights


def gemm(board: Board) -> None:
    """Weights (n, k) held out in every library, version and system; intervals on them."""
    rows, weights = bf16_gemms()
    names = np.unique(weights)
    chosen = np.random.default_rng(1).choice(names, round(HELD_PAIRS * len(names)), replace=False)
    held = np.isin(weights, chosen)
    board["gemm_weights_held_out"], residual = scored(rows, held)
    test = rows.take(held)
    libraries = test.column("software")
    board["gemm_weights_by_library"] = {
        name: errors(test.take(libraries == code), residual[libraries == code])
        for code, name in ((4, "sglang"), (5, "trtllm"), (6, "vllm"))}
    board["gemm_intervals"] = interval(weights[held], residual)


def interval(keys: np.ndarray, residual: np.ndarray) -> Board:
    """Widths from one half of the keys, scored on the other."""
    half = fold_of(keys, 2, seed=2) == 0
    place = 5  # level 0.9
    one = np.zeros(int(half.sum()), dtype=np.int64)
    width = grouped_widths(residual[half], one, 1)[0, place]
    other = np.abs(residual[~half])
    median = float(np.median(np.abs(np.expm1(-residual[~half]))))
    return {"coverage": percent((other <= width).mean()), "half_width": percent(np.sinh(width)),
            "half_width_in_median_apes": round(float(np.sinh(width)) / median, 2)}


def gpus(board: Board) -> None:
    """Whole GPUs and whole dies held out of the bf16 products."""
    rows, _ = bf16_gemms()
    for name, out in (("h100-sxm", ("h100-sxm",)), ("h200-sxm", ("h200-sxm",)),
                      ("hopper", HOPPER), ("blackwell", BLACKWELL)):
        board[f"gemm_without_{name}"], _ = scored(rows, np.isin(rows.gpu, out))
        print(name, board[f"gemm_without_{name}"], flush=True)


def regressor(board: Board) -> None:
    """The tables of arXiv 2509.22832 against its own regressors, and two extrapolations."""
    folder = REFERENCE / "kernels" / "estimate-train-time"
    frame = estimate_train_time.read(folder).reset_index(drop=True)
    found = clean(frame)
    tables = kernel_rows(found)
    extrapolations(board, tables["gemm"], found, frame)
    board["regressor"] = against_theirs(*ten_splits(tables))


def ten_splits(tables: dict[str, LearningRows]) -> tuple[pd.DataFrame, pd.Series]:
    """Return the MAPE of every operator over seeded 80/20 splits, and its rows."""
    per_split: list[pd.DataFrame] = []
    for seed in range(SPLITS):
        for rows in tables.values():
            held = np.random.default_rng(seed).random(int(rows.measurement.max()) + 1) < 0.2
            held = held[rows.measurement]
            test = rows.take(held)
            residual = residuals(test, fit(rows.take(~held), seed))
            once = np.unique(test.measurement, return_index=True)[1]
            per_split.append(pd.DataFrame({
                "gpu": test.gpu[once], "operator": test.label[once],
                "ape": 100 * np.abs(np.expm1(-residual[once])), "seed": seed}))
        print("split", seed, flush=True)
    scores = pd.concat(per_split)
    mape = scores.groupby(["gpu", "operator", "seed"])["ape"].mean().groupby(
        ["gpu", "operator"]).agg(["mean", "std"])
    return mape, scores.groupby(["gpu", "operator"]).size() / SPLITS * 5


def extrapolations(board: Board, rows: LearningRows, found: KernelMeasurements,
                   frame: pd.DataFrame) -> None:
    """Wide models, and layers that are not split, held out of the linear layers."""
    rows = rows.take(np.array([op.startswith("linear") for op in found.op])[rows.measurement])
    shapes = frame.loc[found.rows].iloc[rows.measurement]
    # The fused projection, the first MLP matrix and the head read the hidden width.
    reads = shapes["impl"].isin(["linear1", "linear3", "linear_final"])
    hidden = np.where(reads, shapes["k"], shapes["n"])
    board["linear_wide_held_out"], _ = scored(rows, hidden > WIDEST_SEEN)
    factor = shapes["impl"].map({"linear1": 3, "linear2": 1, "linear3": 4, "linear4": 4})
    split = factor * np.where(reads, shapes["k"] / shapes["n"], shapes["n"] / shapes["k"])
    board["linear_tp1_held_out"], _ = scored(rows, (split.round() == 1).to_numpy())


def against_theirs(mape: pd.DataFrame, rows: pd.Series) -> Board:
    theirs = pd.read_csv(REFERENCE / "kernels" / "zhang_regressor_errors.csv")
    cluster = {"Perlmutter": "a100-sxm-80gb", "Vista": "gh200-96gb"}
    known = {(cluster[row.cluster], f"{row.op} {row.dir_or_topo}".replace(" dur", " step")):
             float(row[-1]) for row in theirs.itertuples(index=False)}
    table = {}
    for (gpu, operator), score in mape.iterrows():
        table[f"{gpu} {operator}"] = {
            "rows": round(float(rows[gpu, operator])), "mape": round(float(score["mean"]), 2),
            "std": round(float(score["std"]), 2), "theirs": known.get((gpu, operator))}
    compared = {name: row for name, row in table.items()
                if row["theirs"] is not None and row["rows"] >= FEWEST}
    better = sum(row["mape"] < row["theirs"] for row in compared.values())
    return {"better": better, "compared": len(compared), "operators": table}


def attention(board: Board) -> None:
    """Whole models of cudnn-frontend held out, forward and backward; other sources stay."""
    tables = kernel_tables(REFERENCE, wanted=KERNEL_SOURCES)
    frame = pd.concat([table.frame for table in tables], ignore_index=True)
    frame = frame[frame["op"] == "attention"].reset_index(drop=True)
    found = clean(frame)
    found = found.without(host_bound(found))
    rows = kernel_rows(found)["attention"]
    frame = frame.loc[found.rows].iloc[rows.measurement]
    ours = (frame["source"] == cudnn_frontend.SOURCE).to_numpy()
    names = np.array([re.split(r"[_.\d]", Path(name).name)[0] for name in frame["file"]])
    parts = {}
    every = np.full(len(rows), np.nan)
    for name in np.unique(names[ours]):
        held = ours & (names == name)
        parts[str(name)], every[held] = scored(rows, held)
        print(name, parts[str(name)], flush=True)
    board["attention_models_held_out"] = errors(rows.take(ours), every[ours]) | {
        "by_model": parts,
        "model_mean_mape": round(float(np.mean([part["mape"] for part in parts.values()])), 2)}


SPEED_ROWS = 1_000_000


def speed(board: Board) -> None:
    """Different kernels that the shipped bundle times in one call, per second."""
    timer = LearnedTimer(open_bundle(model_folder()).models)
    gpus = GpuTable.from_gpus([load_gpu("h100-sxm"), load_gpu("b200-sxm")])
    rng = np.random.default_rng(0)
    for name, kinds in (("products", (0,)), ("mixed", (0, 0, 3, 4, 6, 6, 6))):
        table = random_kernels(rng, SPEED_ROWS, kinds)
        timer.kernels(table.take(np.arange(20_000)), gpus)  # loads the boosters
        best = min(timed(lambda t=table: timer.kernels(t, gpus)) for _ in range(3))
        board[f"speed_{name}_rows_per_s"] = round(len(table) / best)


def timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def random_kernels(rng: np.random.Generator, rows: int, kinds: tuple[int, ...]) -> KernelTable:
    m, n, k = np.round(2.0 ** rng.uniform(6, 14, (3, rows)))
    kind = rng.choice(kinds, rows)
    attention = kind == 3
    k = np.where(attention, 128.0, k)
    one = np.ones(rows)
    whole = np.zeros(rows, dtype=np.int64)
    return KernelTable(
        kind=kind, phase=rng.integers(0, 3, rows) * (kind == 0), dtype=whole + int(Dtype.BF16),
        device=rng.integers(0, 2, rows), batch=np.where(attention, 32.0, one), m=m, n=n, k=k,
        causal=np.where(attention, 0.5, 1.0), flops=2 * m * n * k,
        bytes=2 * (m * k + n * k + m * n), launches=one, portable=whole)


PARTS: dict[str, Callable[[Board], None]] = {
    "gemm": gemm, "gpus": gpus, "regressor": regressor, "attention": attention,
    "speed": speed}


def main() -> int:
    results = HERE / "results.json"
    board: Board = json.loads(results.read_text()) if results.exists() else {}
    for name in sys.argv[1:] or PARTS:
        began = time.perf_counter()
        PARTS[name](board)
        board["made_from"] = {"core": digest(GOLDEN)}
        results.write_text(json.dumps(board, indent=1) + "\n")
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
    print(json.dumps({name: part for name, part in board.items() if name != "regressor"}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
