"""Reads the operator benchmarks of Primus-Turbo (AMD-AGI/Primus-Turbo, MIT) on AMD GPUs.

Layout: the CSV that ``benchmark/ops/bench_*_turbo.py`` writes, or several of them in one table
with the columns ``file`` and ``op``. GEMM, grouped GEMM and attention, forward and backward (both
gradients), wall clock over 100 to 200 calls in a row (``torch.utils.benchmark``). Times are printed
in hundredths of a millisecond, rates in hundredths of a TFLOP/s: seconds are taken from the rate,
whose rounding is finer. The fp8 operators quantize their bf16 operands inside the time.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.datasets.kernel_schema import stack
from predictor.datasets.sources.frames import (
    catalogue_names, numbers, open_table, refuse_unknown, tidy, words,
)
from predictor.spec.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

SOURCE = "primus-turbo"
LICENCE = "MIT"
_PASSES = (("fwd", "Forward"), ("bwd", "Backward"))
_NEEDED = ("GPU", "Check", *(f"{word} {what}" for _, word in _PASSES
                             for what in ("Time (ms)", "TFLOPS")))
_MARKS = {"attention": "SeqLen", "grouped_gemm": "B", "gemm": "M"}
"""The column that tells a benchmark's CSV from the others, tried in this order."""
_BACKWARD = {"attention": 2.5, "grouped_gemm": 2.0, "gemm": 2.0}
"""FLOP of the backward pass over those of the forward pass, as the benchmarks count."""
_DTYPES = ("bf16", "fp8")
_FUNCTIONS = {"attention": ("flash_attn_func", "flash_attn_fp8_func"),
              "grouped_gemm": ("grouped_gemm", "grouped_gemm_fp8"), "gemm": ("gemm", "gemm_fp8")}
"""What ``primus_turbo.pytorch.ops`` calls the operator, in bf16 and in fp8."""
_ROUNDING_MS, _ROUNDING = 0.0051, 0.005
"""How far a printed time may lie from the one that its printed rate implies."""
_MILLI, _TERA = 1e-3, 1e12


def read(path: Path) -> pd.DataFrame:
    """Return the tidy table of a CSV: two rows for each of its own.

    Calls that failed, and those whose GPU is not named, are left out; wrong results keep their
    times, flagged ``check-failed``.

    Raises
    ------
    InputError
        When the file cannot be read, is of another kind, or states times and rates that
        contradict each other.
    """
    path = Path(path)
    table = open_table(path, _NEEDED, "Primus-Turbo's benchmarks")
    op = words(table, "op") if "op" in table else words(table, "").map(lambda _: _kind(table))
    refuse_unknown("operation", op, _MARKS)
    file = words(table, "file") if "file" in table else words(table, "").map(lambda _: path.name)
    # The attention benchmark leaves the type out of its rows and in the name of its file.
    dtype = words(table, "Dtype")
    dtype = dtype.where(dtype != "", file.str.contains("fp8").map({True: "fp8", False: "bf16"}))
    refuse_unknown("data type", dtype, _DTYPES)
    shared = {
        "source": SOURCE, "licence": LICENCE, "file": file, "timing_kind": "host",
        "gpu": catalogue_names(table["GPU"]), "software": "primus-turbo", "op": op,
        "dtype": dtype, "impl": _implementation(op, dtype, words(table, "Granularity")),
        "flag": np.where(table["Check"] == "PASS", "", "check-failed")}
    shapes, flops = _shapes(table, op)
    return stack(
        tidy(shared | shapes | {"pass": name} | _timing(
            table, word, flops * (op.map(_BACKWARD) if name == "bwd" else 1.0)), table.index)
        for name, word in _PASSES)


def _kind(table: pd.DataFrame) -> str:
    for op, mark in _MARKS.items():
        if mark in table:
            return op
    raise InputError.of("primus-turbo-kind", "the table has none of the columns "
                        + ", ".join(_MARKS.values()), "give a CSV of bench_gemm_turbo.py, "
                        "bench_grouped_gemm_turbo.py or bench_attention_turbo.py")


def _implementation(op: pd.Series[Any], dtype: pd.Series[Any], granularity: pd.Series[Any]
                    ) -> list[str]:
    """Return the operator's function and, for fp8, the granularity of its scales."""
    return [f"{_FUNCTIONS[kind][_DTYPES.index(width)]} {scales}".strip()
            for kind, width, scales in zip(op, dtype, granularity, strict=True)]


def _shapes(table: pd.DataFrame, op: pd.Series[Any]
            ) -> tuple[dict[str, Any], pd.Series[Any]]:
    """Return the columns of shapes, and the FLOP of the forward pass that the source counts."""
    attention, grouped = op == "attention", op == "grouped_gemm"
    seq, heads = numbers(table, "SeqLen"), numbers(table, "num_head_q")
    query, value = numbers(table, "head_dim_qk"), numbers(table, "head_dim_v")
    causal = words(table, "Causal").str.lower() == "true"
    batch = numbers(table, "Batch").where(attention, numbers(table, "B").where(grouped, 1.0))
    m, n, k = (numbers(table, name) for name in "MNK")
    scores = seq * seq * heads * (query + value) * np.where(causal, 0.5, 1.0)
    flops = 2 * batch * scores.where(attention, m * n * k)
    shapes = {
        "batch": batch, "m": m, "n": n, "k": k, "seq": seq, "seq_kv": seq, "heads": heads,
        "kv_heads": numbers(table, "num_head_kv"), "head_dim": query, "head_dim_v": value,
        "causal": np.where(attention, np.where(causal, "1", "0"), "")}
    return shapes, flops


def _timing(table: pd.DataFrame, word: str, flops: pd.Series[Any]) -> dict[str, Any]:
    printed = numbers(table, f"{word} Time (ms)")
    rate = numbers(table, f"{word} TFLOPS")
    seconds = flops / (rate.where(rate > 0) * _TERA)
    apart = (seconds / _MILLI - printed).abs()
    wrong = apart > _ROUNDING_MS + _ROUNDING * printed
    if wrong.any():
        row = int(np.argmax(wrong.to_numpy()))
        raise InputError.of(
            "time-agrees-with-rate", f"{int(wrong.sum())} rows contradict themselves; row {row} "
            f"says {printed.iloc[row]} ms and {rate.iloc[row]} TFLOP/s, which is "
            f"{seconds.iloc[row] / _MILLI:.2f} ms", "give the table as the benchmark wrote it",
            where=f"{word} Time (ms)")
    return {"latency_s": seconds.where(printed > 0), "flops": flops}
