"""What the readers of single files share: opening, catalogue names, and the tidy frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.catalog import load_gpu
from predictor.datasets.kernel_schema import normalise
from predictor.datasets.tables import read_table, require_columns
from predictor.spec.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


def open_table(path: Path, needed: Iterable[str], what: str,
               known: Iterable[str] | None = None) -> pd.DataFrame:
    """Return a CSV or parquet file in a source's own columns.

    Parameters
    ----------
    path
        The file.
    needed
        Columns that it must have.
    what
        The kind of table, in words, for messages.
    known
        Columns that it may have; None allows any.

    Raises
    ------
    InputError
        When the file cannot be read, or columns are absent or unknown.
    """
    frame = read_table(Path(path))
    require_columns(frame, needed, what)
    if known is not None:
        refuse_unknown("column", map(str, frame.columns), known)
    return frame


def refuse_unknown(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse words that a reader has no meaning for.

    Raises
    ------
    InputError
        Naming all of them.
    """
    allowed = sorted(set(known))
    unknown = sorted(set(given) - set(allowed))
    if unknown:
        raise InputError.of(f"known-{what}", f"unknown {what} {', '.join(unknown)}",
                            f"give only {', '.join(allowed)}")


@lru_cache(maxsize=256)
def catalogue_name(written: str) -> str:
    """Return what the catalogue calls a GPU; blank where it has none of that name."""
    try:
        return load_gpu(written).name
    except InputError:
        return ""


def catalogue_names(gpus: pd.Series[Any]) -> pd.Series[Any]:
    """Return what the catalogue calls each GPU; blank where it has none of that name."""
    return gpus.astype(object).fillna("").map(
        lambda written: catalogue_name(str(written)))


def numbers(frame: pd.DataFrame, name: str) -> pd.Series[Any]:
    """Return a column as floats; what is absent or no number is NaN."""
    import pandas as pd

    if name not in frame:
        return pd.Series(np.full(len(frame), np.nan), index=frame.index)
    return pd.to_numeric(frame[name], errors="coerce").astype("float64")


def words(frame: pd.DataFrame, name: str) -> pd.Series[Any]:
    """Return a column as text; what is absent or blank is ``""``."""
    import pandas as pd

    if name not in frame:
        return pd.Series([""] * len(frame), index=frame.index, dtype=object)
    return frame[name].astype(object).where(frame[name].notna(), "").map(str)


def tidy(cells: Mapping[str, Any], index: pd.Index[Any]) -> pd.DataFrame:
    """Return the tidy table of columns or single values.

    Rows without a positive time, and those of a GPU outside the catalogue, are left out.
    """
    import pandas as pd

    frame = normalise(pd.DataFrame(dict(cells), index=index))
    timed = np.isfinite(frame["latency_s"]) & (frame["latency_s"] > 0)
    kept: pd.DataFrame = frame[timed & (frame["gpu"] != "")].reset_index(drop=True)
    return kept
