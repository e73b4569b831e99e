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

from predictor.datasets.tidy import checked, numbers, stacked
from predictor.spec.errors import InputError

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
    columns = {name: _texts(frame, name) if name in TEXTS else numbers(frame, name)
               for name in COLUMNS}
    return pd.DataFrame(columns, index=range(len(frame)))


def empty() -> pd.DataFrame:
    """Return a tidy table without rows."""
    import pandas as pd

    return normalise(pd.DataFrame())


def stack(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Return tidy tables as one, in order; an empty tidy table when there are none."""
    return stacked(frames, empty)


def validate(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame unchanged when it obeys the schema.

    Needs pandera (extra ``train``).

    Raises
    ------
    InputError
        Listing every column and check that fails, with the first values that do.
    """
    return checked(frame, "kernel-schema", {name: _rule(name) for name in COLUMNS}, TEXTS)


def _texts(frame: pd.DataFrame, name: str) -> pd.Series[Any]:
    import pandas as pd

    if name not in frame:
        return pd.Series([""] * len(frame), index=range(len(frame)), dtype="str")
    return frame[name].astype("str").fillna("").reset_index(drop=True)


def _rule(name: str) -> dict[str, Any]:
    """Return what the cells of a column must obey, as arguments of a pandera field."""
    if name == "latency_s":
        return {"gt": 0, "lt": float("inf")}
    if name in NUMBERS:
        return {"ge": 0, "lt": float("inf"), "nullable": True}
    if name in _WORDS:
        return {"isin": list(_WORDS[name])}
    return {"str_length": {"min_value": 1}} if name in _REQUIRED else {}
