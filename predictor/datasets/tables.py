"""Opens measured tables: CSV or parquet files, or frames that are already open."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from predictor.spec.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


def read_table(source: str | Path | pd.DataFrame) -> pd.DataFrame:
    """Return the table with one row per measurement.

    Raises
    ------
    InputError
        When there is no such file or it is neither CSV nor parquet.
    """
    import pandas as pd

    if isinstance(source, pd.DataFrame):
        return source
    path = Path(source)
    if not path.is_file():
        raise InputError.of("table-exists", f"there is no table at {path}",
                            "give the path of a CSV or parquet file")
    try:
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
        return pd.read_csv(path, low_memory=False)
    except (ValueError, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())[:160]
        raise InputError.of("table-readable", f"cannot read {path}: {reason}",
                            "give a CSV file with a header or a parquet file") from None


def require_columns(frame: pd.DataFrame, needed: Iterable[str], table: str) -> None:
    """Refuse a table that cannot be what it is taken for.

    Raises
    ------
    InputError
        Naming the columns that are absent.
    """
    absent = sorted(set(needed) - set(map(str, frame.columns)))
    if not absent:
        return
    alone = len(frame.columns) == 1 and any(mark in str(frame.columns[0]) for mark in ";\t|")
    remedy = "separate the columns by commas" if alone else f"give a table of {table}"
    raise InputError.of("table-columns", f"the table lacks the columns {', '.join(absent)}", remedy)
