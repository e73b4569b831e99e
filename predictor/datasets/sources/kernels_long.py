"""Reads tables of the kernels_long schema: several sources brought together, microseconds.

Columns: source, gpu, dtype, op, pass, impl, batch, m, n, k, seq, heads, kv_heads, head_dim,
causal, tp, split, latency_us, flops, tflops, flag; what a table lacks is blank.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.datasets.kernel_rows import known_gpu
from predictor.datasets.kernel_schema import normalise
from predictor.datasets.sources.estimate_train_time import vocabulary_rows
from predictor.datasets.tables import read_table, require_columns

if TYPE_CHECKING:
    import pandas as pd

TABLE = "kernels_long.parquet"
TIMING_KINDS = {"neusight": "event", "primus-turbo": "event", "liger": "event",
                "simumax": "event"}
"""Sources that time an eager call with events: a short one measures the host. All others are
taken to have summed kernels in a profiler."""
LICENCES = {"estimate-train-time": "MIT", "neusight": "MIT", "vidur": "MIT",
            "primus-turbo": "MIT", "cudnn-frontend": "MIT"}
SOFTWARE = {"estimate-train-time": "torch", "neusight": "torch", "vidur": "torch",
            "primus-turbo": "primus-turbo", "cudnn-frontend": "cudnn"}
_FLASH = "flash-attn"
_OPS = {"RoPE": "rope"}
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_OPERATORS = {"rope": "RoPE", "rmsnorm": "RMSlayernorm", "embedding": "embedding",
              "cross_entropy": "parallel_cross_entropy_128", "layernorm": "layernorm",
              "gelu": "gelu", "res_add": "res_add"}
"""Operators of estimate-train-time, whose rows leave the implementation blank."""
_CAUSAL = {"1": "1", "1.0": "1", "True": "1", "true": "1", "causal": "1", "": ""}
_NUMBERS = ("batch", "m", "n", "k", "seq", "heads", "kv_heads", "head_dim", "tp", "flops")


def read(folder: Path) -> pd.DataFrame:
    """Return the tidy table of ``kernels_long.parquet`` in ``folder``.

    Rows that name no GPU are left out. ``folder`` may be the file itself.

    Raises
    ------
    InputError
        When there is no such table or it lacks the schema's columns.
    """
    path = Path(folder)
    frame = read_table(path if path.suffix else path / TABLE)
    require_columns(frame, ("source", "gpu", "dtype", "op", "pass", "latency_us", "m", "n", "k"),
                    "measured kernels")
    found = tidy(frame)
    return found[(found["gpu"] != "") & (found["latency_s"] > 0)].reset_index(drop=True)


def tidy(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame's rows, all of them and in order, in the tidy schema.

    GPUs outside the catalogue keep the name they have; words without a translation stay.
    """
    import pandas as pd

    source, op = _words(frame, "source"), _translated(frame, "op", _OPS)
    implementation = _words(frame, "impl")
    unnamed = (implementation == "") & (source == "estimate-train-time")
    implementation = np.where(unnamed, [_OPERATORS.get(word, "") for word in op], implementation)
    passes = _words(frame, "pass")
    columns: dict[str, Any] = {name: pd.to_numeric(frame[name], errors="coerce").to_numpy()
                               for name in _NUMBERS if name in frame}
    if "tp" in columns:
        k = columns.get("k", np.full(len(frame), np.nan))
        ours = (source == "estimate-train-time") & (op == "embedding")
        columns["k"] = np.where(ours, vocabulary_rows(columns["tp"]), k)
    columns |= {
        "source": source, "licence": _each(source, LICENCES, ""), "file": TABLE,
        "timing_kind": _each(source, TIMING_KINDS, "kernel"),
        "gpu": _catalogued(_words(frame, "gpu")), "software": _software(source, implementation, op),
        "impl": implementation, "op": op, "pass": np.where(passes == "", "fwd", passes),
        "dtype": _translated(frame, "dtype", _DTYPES),
        "causal": _each(_words(frame, "causal"), _CAUSAL, "0"), "flag": _words(frame, "flag"),
        "latency_s": pd.to_numeric(frame["latency_us"], errors="coerce").to_numpy() * 1e-6}
    return normalise(pd.DataFrame(columns, index=range(len(frame))))


def _words(frame: pd.DataFrame, name: str) -> np.ndarray[Any, Any]:
    """Return a column as texts, shape (rows,), dtype object."""
    if name not in frame:
        return np.full(len(frame), "", dtype=object)
    return frame[name].astype(object).fillna("").astype(str).to_numpy(dtype=object)


def _each(words: np.ndarray[Any, Any], meanings: dict[str, str], other: str
          ) -> np.ndarray[Any, Any]:
    return np.array([meanings.get(word, other) for word in words], dtype=object)


def _translated(frame: pd.DataFrame, name: str, meanings: dict[str, str]
                ) -> np.ndarray[Any, Any]:
    return np.array([meanings.get(word, word) for word in _words(frame, name)], dtype=object)


def _catalogued(names: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    called = {name: gpu.name for name in set(names) if (gpu := known_gpu(name)) is not None}
    return np.array([called.get(name, name) for name in names], dtype=object)


def _software(source: np.ndarray[Any, Any], implementation: np.ndarray[Any, Any],
              op: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the library that ran each row: benchmarks of one library time others too.

    What vidur profiled beside products are kernels that its engine has from vLLM.
    """
    flash = np.array([word.startswith("flash_att") for word in implementation], dtype=bool)
    torch = np.array([word.startswith(("pyt", "torch")) for word in implementation], dtype=bool)
    engine = (source == "vidur") & (op != "linear")
    return np.select([flash, torch, engine], [_FLASH, "torch", "vllm"],
                     _each(source, SOFTWARE, "")).astype(object)
