"""The one schema that every source of measured collectives is brought into: the tidy table.

One row is one measured size. Columns are those of nccl-tests with the machine's links: ``bytes``
follows nccl-tests (see :class:`predictor.lowering.tables.CollectiveTable`), times are in
microseconds, bandwidths in GB/s and adapters in Gbit/s, as its logs print them. A blank text is
``""`` and a blank number NaN.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from predictor.datasets.kernel_schema import TIMING_KINDS
from predictor.datasets.tidy import checked, numbers, stacked
from predictor.spec.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "source", "source_ref", "licence", "system", "timing_kind", "gpu", "gpus_per_node", "nodes",
    "world_size", "intra_link", "inter_link", "nic_gbps_per_gpu", "library", "library_version",
    "collective", "dtype", "bytes", "algo", "proto", "time_us", "algbw_GBps", "busbw_GBps",
    "in_place", "notes", "flag", "n_samples", "time_min_us", "time_max_us")
NUMBERS = (
    "gpus_per_node", "nodes", "world_size", "nic_gbps_per_gpu", "bytes", "time_us", "algbw_GBps",
    "busbw_GBps", "in_place", "n_samples", "time_min_us", "time_max_us")
"""Columns of 64-bit floats."""
TEXTS = tuple(name for name in COLUMNS if name not in NUMBERS)
"""Columns of words. ``flag`` holds reasons to doubt a row, joined by semicolons."""
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv", "broadcast",
               "reduce", "gather", "scatter", "hypercube")
"""Tests of nccl-tests."""
BUS_FACTORS = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "alltoall": 1.0}
"""Bus over algorithm bandwidth is this times (n - 1) / n, and 1 for the others (nccl-tests,
doc/PERFORMANCE.md)."""
_REQUIRED = ("source", "licence", "gpu")
_POSITIVE = ("world_size", "nodes", "bytes", "time_us")


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
        raise InputError.of("collective-columns", f"unknown columns {', '.join(unknown)}",
                            f"give only the columns {', '.join(COLUMNS)}")
    columns = {name: _texts(frame, name) if name in TEXTS else numbers(frame, name)
               for name in COLUMNS}
    return pd.DataFrame(columns, index=range(len(frame)))


def with_bandwidths(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a tidy table with the bandwidths that nccl-tests would print filled in."""
    factor = frame["collective"].map(BUS_FACTORS)
    share = factor * (1 - 1 / frame["world_size"])
    algbw = frame["bytes"] / frame["time_us"] * 1e-3
    return frame.assign(algbw_GBps=algbw, busbw_GBps=algbw * share.fillna(1.0))


def stack(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Return tidy tables as one, in order; an empty tidy table when there are none."""
    import pandas as pd

    return stacked(frames, lambda: normalise(pd.DataFrame()))


def validate(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame unchanged when it obeys the schema.

    Needs pandera (extra ``train``).

    Raises
    ------
    InputError
        Listing every column and check that fails, with the first values that do.
    """
    return checked(frame, "collective-schema", {name: _rule(name) for name in COLUMNS},
                   [name for name in COLUMNS if name not in NUMBERS])


def _texts(frame: pd.DataFrame, name: str) -> pd.Series[Any]:
    import pandas as pd

    if name not in frame:
        return pd.Series([""] * len(frame), index=range(len(frame)), dtype="str")
    column = frame[name].astype(object)
    return column.where(column.notna(), "").map(str).astype("str").reset_index(drop=True)


def _rule(name: str) -> dict[str, Any]:
    """Return what the cells of a column must obey, as arguments of a pandera field."""
    if name in _POSITIVE:
        return {"gt": 0, "lt": float("inf")}
    if name == "in_place":
        return {"isin": [0.0, 1.0], "nullable": True}
    if name in NUMBERS:
        return {"ge": 0, "lt": float("inf"), "nullable": True}
    words = {"timing_kind": TIMING_KINDS, "collective": COLLECTIVES}
    if name in words:
        return {"isin": list(words[name])}
    return {"str_length": {"min_value": 1}} if name in _REQUIRED else {}
