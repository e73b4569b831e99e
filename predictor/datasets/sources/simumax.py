"""Reads the measured efficiencies of SimuMax (MooreThreads/SimuMax, Apache-2.0).

Layout: the ``accurate_efficient_factor`` entries of its system files as one table, a row for each
shape, with ``eff`` = achieved rate / ``peak_tflops`` (simu_tools/efficency_test). bf16,
Transformer Engine, wall clock over some 40 to 90 calls in a row. Causal attention is counted in
full, so that its efficiency may exceed 1.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.catalog import load_gpu
from predictor.datasets.kernel_schema import stack
from predictor.datasets.sources.frames import (
    catalogue_names, numbers, open_table, refuse_unknown, tidy, words,
)
from predictor.spec.errors import InputError, Problem

if TYPE_CHECKING:
    import pandas as pd

SOURCE = "simumax"
LICENCE = "Apache-2.0"
_NEEDED = ("gpu", "op", "peak_tflops", "eff")
_KNOWN = (*_NEEDED, "tflops", "b", "m", "k", "n", "layout", "accumulate", "out_dtype", "batch",
          "seq_len", "head_num", "kv_head_num", "qk_head_dim", "v_head_dim", "qkv_contiguous",
          "ng", "M", "N", "K", "dtype", "main_grad_dtype", "stage", "grad",
          "use_split_accumulator", "single_output")
_LAYOUTS = {"TN": "fwd", "NN": "dgrad", "NT": "wgrad"}
"""Which GEMM of a linear layer runs in each layout (run_te_gemm of test_gemm_efficiency.py)."""
_STAGES = {"fwd": "fwd", "bwd_grad_act": "dgrad", "bwd_grad_w": "wgrad"}
_ATTENTION_PASSES = {"sdp_fwd": ("fwd", 2.0), "sdp_bwd": ("bwd", 5.0)}
"""Pass and FLOP per query, key, head and element of a query and a value (test_fa_efficiency.py)."""
OPERATIONS = ("matmul", "group_matmul", *_ATTENTION_PASSES)
_PEAK_TOLERANCE = 0.01
_TERA = 1e12


def read(path: Path) -> pd.DataFrame:
    """Return the tidy table; a gradient GEMM carries the shape of its layer's forward GEMM.

    Raises
    ------
    InputError
        When the file cannot be read, has columns, operations or layouts of another kind, or
        divides by a peak that is not the catalogue's bf16 peak of that GPU.
    """
    path = Path(path)
    table = open_table(path, _NEEDED, "SimuMax's efficiencies", _KNOWN)
    refuse_unknown("operation", words(table, "op"), OPERATIONS)
    table = table.assign(gpu=catalogue_names(table["gpu"]))
    _check_peaks(table)
    return stack(
        _rows(part, path.name, str(op))
        for op, part in table.groupby("op", sort=False))


def _check_peaks(table: pd.DataFrame) -> None:
    problems = []
    pairs = sorted(set(zip(table["gpu"], numbers(table, "peak_tflops"), strict=True)))
    for gpu, stated in ((gpu, stated) for gpu, stated in pairs if gpu):
        peak = load_gpu(gpu).bf16_flops
        if abs(stated * _TERA - peak) > _PEAK_TOLERANCE * peak:
            problems.append(Problem(
                rule="peak-of-the-catalogue", where="peak_tflops",
                message=f"efficiencies of {gpu} are of {stated:g} TFLOP/s, but its bf16 peak is "
                        f"{peak / _TERA:g} TFLOP/s",
                remedy="name the GPU that was measured, or scale the efficiencies"))
    if problems:
        raise InputError(problems)


def _rows(table: pd.DataFrame, file: str, op: str) -> pd.DataFrame:
    shapes = _linear if op == "matmul" else _grouped if op == "group_matmul" else _attention
    cells = shapes(table)
    rate = numbers(table, "eff") * numbers(table, "peak_tflops") * _TERA
    return tidy({
        "source": SOURCE, "licence": LICENCE, "file": file, "timing_kind": "host",
        "gpu": table["gpu"], "software": "te", "dtype": "bf16",
        "latency_s": cells["flops"] / rate.where(rate > 0)} | cells, table.index)


def _linear(table: pd.DataFrame) -> dict[str, Any]:
    """Turn (m, k) x (k, n), whatever it computes, into the layer's tokens, outputs and inputs.

    dgrad contracts over the outputs (m tokens, n inputs), wgrad over the tokens (m outputs,
    n inputs); ``b`` multiplies the tokens.
    """
    layout = words(table, "layout")
    refuse_unknown("layout", layout, _LAYOUTS)
    b, m, n, k = (numbers(table, name) for name in "bmnk")
    passes = layout.map(_LAYOUTS)
    cases = [passes == "fwd", passes == "dgrad", passes == "wgrad"]
    return {
        "op": "gemm", "pass": passes, "batch": 1.0, "flops": 2 * b * m * n * k,
        "m": np.select(cases, [b * m, b * m, b * k]), "n": np.select(cases, [n, k, m]),
        "k": np.select(cases, [k, n, n]),
        "impl": "general_gemm " + layout + " " + words(table, "out_dtype") + _accumulates(table)}


def _grouped(table: pd.DataFrame) -> dict[str, Any]:
    """All stages are keyed by the forward shape: ng groups of (M, K) x (K, N)."""
    stage = words(table, "stage")
    refuse_unknown("stage", stage, _STAGES)
    groups, m, n, k = (numbers(table, name) for name in ("ng", "M", "N", "K"))
    return {
        "op": "grouped_gemm", "pass": stage.map(_STAGES), "batch": groups, "m": m, "n": n, "k": k,
        "flops": 2 * groups * m * n * k,
        "impl": "general_grouped_gemm " + words(table, "main_grad_dtype") + _accumulates(table)}


def _accumulates(table: pd.DataFrame) -> pd.Series[Any]:
    """Say that the product is added to what its output held, which reads the output as well."""
    return (words(table, "accumulate").str.lower() == "true").map(
        {True: " accumulate", False: ""})


def _attention(table: pd.DataFrame) -> dict[str, Any]:
    batch, seq = numbers(table, "batch"), numbers(table, "seq_len")
    heads, groups = numbers(table, "head_num"), numbers(table, "kv_head_num")
    query, value = numbers(table, "qk_head_dim"), numbers(table, "v_head_dim")
    name, flop = _ATTENTION_PASSES[str(table["op"].iloc[0])]
    strided = words(table, "qkv_contiguous").str.lower() == "false"
    return {
        "op": "attention", "pass": name, "batch": batch, "seq": seq, "seq_kv": seq,
        "heads": heads, "kv_heads": groups, "head_dim": query, "head_dim_v": value, "causal": "1",
        "flops": flop * batch * seq * seq * np.maximum(heads, groups) * (query + value),
        "impl": np.where(strided, "sdp strided", "sdp contiguous")}
