"""The one schema that every source of measured kernels is brought into: the tidy table.

One row is one measurement. Units are SI; a blank text is ``""`` and a blank number NaN. Shapes:
GEMM output (m, n) with contraction k, m being tokens; a grouped GEMM has ``batch`` groups of m
tokens on average; memory-bound operations run over m rows of n elements, ``embedding`` with a
table of k rows; attention has ``batch`` samples of ``seq`` queries and ``seq_kv`` keys, which a
causal mask aligns at the end; an optimizer step has m parameters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from predictor.spec.errors import InputError, Problem

if TYPE_CHECKING:
    import pandas as pd

TEXTS = ("source", "licence", "file", "timing_kind", "gpu", "software", "version", "impl", "op",
         "pass", "dtype", "causal", "flag")
"""Columns of words."""
COLUMNS = ("source", "licence", "file", "timing_kind", "gpu", "software", "version", "impl", "op",
           "pass", "dtype", "batch", "m", "n", "k", "seq", "seq_kv", "heads", "kv_heads",
           "head_dim", "head_dim_v", "window", "causal", "experts", "topk", "tp", "latency_s",
           "flops", "flag")
NUMBERS = tuple(name for name in COLUMNS if name not in TEXTS)
"""Columns of 64-bit floats."""
TIMING_KINDS = ("kernel", "graph", "event", "host")
"""Device time from a profiler; CUDA-graph replay without launches; an eager call between two
events, launches included; wall clock."""
OPERATIONS = (
    "linear", "linear_bias", "gemm", "bmm", "baddbmm", "grouped_gemm", "attention", "layernorm",
    "rmsnorm", "softmax", "causal_softmax", "masked_fill", "gelu", "silu", "swiglu", "relu",
    "tanh", "res_add", "add", "mul", "div", "addu", "mulu", "divu", "powu", "pow", "rope",
    "cross_entropy", "embedding", "optimizer", "permute", "quantize", "act")
PASSES = ("fwd", "bwd", "dgrad", "wgrad", "step")
"""``bwd`` is both gradients of a linear layer, or the backward of anything else."""
DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8", "nvfp4")
_REQUIRED = ("source", "licence", "file", "gpu")
_WORDS = {"timing_kind": TIMING_KINDS, "op": OPERATIONS, "pass": PASSES, "dtype": DTYPES,
          "causal": ("", "0", "1")}
_SHOWN = 3
"""Offending values quoted in a message."""


def normalise(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with all columns of the schema, in order, blanks where it has none.

    Numbers written as text become numbers; what is no number becomes NaN.

    Raises
    ------
    InputError
        Naming columns that the schema does not have.
    """
    import pandas as pd

    unknown = sorted(set(map(str, frame.columns)) - set(COLUMNS))
    if unknown:
        raise InputError.of("kernel-columns", f"unknown columns {', '.join(unknown)}",
                            f"give only the columns {', '.join(COLUMNS)}")
    columns = {name: _texts(frame, name) if name in TEXTS else _numbers(frame, name)
               for name in COLUMNS}
    return pd.DataFrame(columns, index=range(len(frame)))


def empty() -> pd.DataFrame:
    """Return a tidy table without rows."""
    import pandas as pd

    return normalise(pd.DataFrame())


def stack(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Return tidy tables as one, in order; an empty tidy table when there are none."""
    import pandas as pd

    kept = [frame for frame in frames if len(frame)]
    return pd.concat(kept, ignore_index=True) if kept else empty()


def validate(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame unchanged when it obeys the schema.

    Needs pandera (extra ``train``).

    Raises
    ------
    InputError
        Listing every column and check that fails, with the first values that do.
    """
    import pandera.errors

    try:
        checked: pd.DataFrame = _model().validate(frame, lazy=True)
        return checked
    except pandera.errors.SchemaErrors as error:
        raise InputError(_problems(error.failure_cases)) from None


def _texts(frame: pd.DataFrame, name: str) -> pd.Series[Any]:
    import pandas as pd

    if name not in frame:
        return pd.Series([""] * len(frame), index=range(len(frame)), dtype="str")
    return frame[name].astype("str").fillna("").reset_index(drop=True)


def _numbers(frame: pd.DataFrame, name: str) -> pd.Series[Any]:
    import numpy as np
    import pandas as pd

    if name not in frame:
        return pd.Series(np.full(len(frame), np.nan))
    found = pd.to_numeric(frame[name], errors="coerce").astype("float64")
    return pd.Series(found.to_numpy(), index=range(len(frame)))


def _model() -> Any:
    """Return the table as a pandera model; pandera is imported here and nowhere else."""
    import pandera.pandas as pa

    fields: dict[str, Any] = {}
    for name in COLUMNS:
        if name in TEXTS:
            fields[name] = pa.Field(**_text_rule(name))
        else:
            least: dict[str, Any] = {"gt": 0} if name == "latency_s" else {"ge": 0}
            fields[name] = pa.Field(nullable=name != "latency_s", lt=float("inf"), **least)
    config = type("Config", (), {"strict": True, "ordered": True, "coerce": False})
    types: dict[str, type] = {name: str if name in TEXTS else float for name in COLUMNS}
    return type("KernelRows", (pa.DataFrameModel,),
                {"__annotations__": types, "Config": config, "__module__": __name__} | fields)


def _text_rule(name: str) -> dict[str, Any]:
    if name in _WORDS:
        return {"isin": list(_WORDS[name])}
    return {"str_length": {"min_value": 1}} if name in _REQUIRED else {}


def _problems(failures: pd.DataFrame) -> list[Problem]:
    """Return one problem per column and check, quoting a few of the values."""
    found = []
    failures = failures.assign(column=failures["column"].fillna("").astype(str))
    for (column, check), group in failures.groupby(["column", "check"], sort=True):
        values = sorted({str(value) for value in group["failure_case"]})
        more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
        rows = [int(row) for row in group["index"].dropna().head(_SHOWN)]
        where = f" (rows {', '.join(map(str, rows))}, ...)" if rows else ""
        found.append(Problem(
            rule="kernel-schema", where=str(column),
            message=f"{check} fails for {', '.join(values[:_SHOWN])}{more}{where}",
            remedy="correct the reader of this source, or take the rows out"))
    return found
