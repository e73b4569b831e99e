from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from predictor.datasets.kernels import measurements
from predictor.datasets.physical import (
    ABOVE_BANDWIDTH, ABOVE_PEAK, BELOW_FORWARD, FAR_FROM_HARDWARE, LOST_ROWS, LOST_SERIES,
    far_from_hardware, reasons,
)
from predictor.datasets.sources import kernels_long

GEMM = {"source": "x", "gpu": "a100-sxm-80gb", "dtype": "fp16", "op": "linear", "pass": "fwd",
        "timing_kind": "kernel", "m": 10240.0, "n": 6400.0, "k": 3584.0, "latency_s": 1890e-6}
ATTENTION = GEMM | {"op": "attention", "batch": 4.0, "seq": 2048.0, "heads": 16.0,
                    "head_dim": 128.0, "causal": "0", "latency_s": 4e-3}


def judged(*rows: dict[str, Any]) -> list[str]:
    return list(reasons(measurements(pd.DataFrame(list(rows)))))


@pytest.mark.parametrize(("changes", "why"), [
    ({}, ""),
    ({"latency_s": 1400e-6}, ABOVE_PEAK),
    ({"pass": "bwd", "latency_s": 2000e-6}, ABOVE_PEAK),
    ({"op": "add", "latency_s": 100e-6}, ABOVE_BANDWIDTH),
    ({"op": "add", "m": 1024.0, "n": 512.0, "latency_s": 1e-9}, ""),  # lives in the L2 cache
])
def test_a_time_is_held_against_the_hardware(changes: dict[str, Any], why: str) -> None:
    assert judged(GEMM | changes) == [why]


@pytest.mark.parametrize("row", [GEMM | {"m": 64.0}, ATTENTION])
def test_a_backward_pass_is_held_against_its_forward(row: dict[str, Any]) -> None:
    forward = row["latency_s"]
    fast = row | {"pass": "bwd", "latency_s": 0.8 * forward}
    slow = row | {"pass": "bwd", "latency_s": 0.95 * forward}
    fast_alone = fast | {"impl": "of something else"}
    slower = row | {"latency_s": 3 * forward}
    assert judged(row, fast, slower) == ["", BELOW_FORWARD, ""]
    assert judged(row, slow) == judged(row, fast_alone) == ["", ""]


@pytest.mark.parametrize("column", ["gpu", "dtype", "software", "source", "n", "op"])
def test_only_the_same_work_is_compared(column: str) -> None:
    other = {"gpu": "h100-sxm", "dtype": "bf16", "software": "te", "source": "y", "n": 6401.0,
             "op": "linear_bias"}
    small = GEMM | {"m": 64.0}
    backward = small | {"pass": "bwd", "latency_s": 1e-3}
    assert judged(small, backward) == ["", BELOW_FORWARD]
    assert judged(small, backward | {column: other[column]}) == ["", ""]


def test_a_memory_bound_backward_may_be_fast() -> None:
    norm = GEMM | {"op": "layernorm", "m": 512.0, "n": 512.0, "latency_s": 20e-6}
    assert judged(norm, norm | {"pass": "bwd", "latency_s": 10e-6}) == ["", ""]


def test_a_series_that_is_nearly_all_impossible_is_lost_whole() -> None:
    impossible = GEMM | {"latency_s": 10e-6}
    assert judged(*[impossible] * LOST_ROWS, GEMM)[-1] == LOST_SERIES
    assert judged(*[impossible] * LOST_ROWS, GEMM | {"impl": "another"})[-1] == ""
    assert judged(*[impossible] * (LOST_ROWS - 1), GEMM)[-1] == ""
    assert judged(*[impossible] * LOST_ROWS, *[GEMM] * 5)[-5:] == [""] * 5


def test_what_is_impossible_can_be_taken_out() -> None:
    found = measurements(pd.DataFrame([
        GEMM | {"latency_s": 1e-5}, GEMM | {"pass": "bwd", "latency_s": 4e-3}]))
    kept = found.without(reasons(found))
    assert kept.passes == ("bwd",) and kept.rows.tolist() == [1]
    assert kept.refusals() == {ABOVE_PEAK: 1} and kept.refused == (("0", ABOVE_PEAK),)
    assert len(kept.table) == 2 and kept.measurement.tolist() == [0, 0]
    assert kept.shapes.shape[0] == len(kept) == 1


@pytest.mark.reference
def test_physics_finds_what_the_public_table_flags(reference: Path) -> None:
    tidy = kernels_long.read(reference / "kernels")
    flags = tidy["flag"].str.startswith("BAD_").to_numpy()
    found = measurements(tidy.assign(flag=""), flagged=True)
    impossible = reasons(found) != ""
    flagged = flags[found.rows]
    assert flagged.sum() == 4069 == impossible[flagged].sum()
    assert np.mean(impossible[~flagged]) <= 0.005


def test_a_series_that_never_comes_near_the_hardware_times_something_else():
    rows = gemm_rows(60)
    slow = rows.assign(impl="prepares weights on every call", latency_s=rows["latency_s"] * 20)
    found = measurements(pd.concat([rows, slow], ignore_index=True))
    why = far_from_hardware(found)
    assert (why[:60] == "").all()
    assert (why[60:] == FAR_FROM_HARDWARE).all()


def test_small_kernels_may_be_far_from_the_hardware():
    rows = gemm_rows(60)
    small = np.arange(60) < 25
    rows["latency_s"] = np.where(small, rows["latency_s"] * 30, rows["latency_s"])
    found = measurements(rows.sort_values("m", kind="stable").reset_index(drop=True))
    assert (far_from_hardware(found) == "").all()


def gemm_rows(count):
    """Products of rising size at half the peak of an A100."""
    m = 64.0 * np.arange(1, count + 1)
    return pd.DataFrame({
        "source": "made-up", "licence": "MIT", "file": "made-up.csv", "timing_kind": "kernel",
        "gpu": "a100-sxm-80gb", "software": "torch", "impl": "plain", "op": "gemm", "pass": "fwd",
        "dtype": "bf16", "batch": 1.0, "m": m, "n": 8192.0, "k": 8192.0,
        "latency_s": 2 * m * 8192.0**2 / 156e12})
