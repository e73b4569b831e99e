"""What the tidy tables share: one frame from several, numeric columns, and checks by pandera."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from predictor.spec.errors import InputError, Problem

if TYPE_CHECKING:
    import pandas as pd

_SHOWN = 3
"""Offending values quoted in a message."""


def stacked(frames: Iterable[pd.DataFrame], empty: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    """Return frames as one, in order; what ``empty`` returns when none has a row."""
    import pandas as pd

    kept = [frame for frame in frames if len(frame)]
    return pd.concat(kept, ignore_index=True) if kept else empty()


def numbers(frame: pd.DataFrame, name: str) -> pd.Series[Any]:
    """Return a column of 64-bit floats, NaN where a cell is blank, no number or absent."""
    import numpy as np
    import pandas as pd

    if name not in frame:
        return pd.Series(np.full(len(frame), np.nan))
    found = pd.to_numeric(frame[name], errors="coerce").astype("float64")
    return pd.Series(found.to_numpy(), index=range(len(frame)))


def checked(
    frame: pd.DataFrame, rule: str, rules: Mapping[str, Mapping[str, Any]], texts: Sequence[str]
) -> pd.DataFrame:
    """Return the frame unchanged when it has exactly the columns of ``rules``, in their order.

    ``rules`` gives what the cells of each column must obey, as arguments of a pandera field;
    columns in ``texts`` hold words, the others 64-bit floats. Needs pandera (extra ``train``).

    Raises
    ------
    InputError
        Listing every column and check that fails under the name ``rule``, with the first values
        that do.
    """
    import pandera.errors
    import pandera.pandas as pa

    fields = {name: pa.Field(**given) for name, given in rules.items()}
    config = type("Config", (), {"strict": True, "ordered": True, "coerce": False})
    types = {name: str if name in texts else float for name in rules}
    model: Any = type("Rows", (pa.DataFrameModel,), {
        "__annotations__": types, "Config": config, "__module__": __name__} | fields)
    try:
        found: pd.DataFrame = model.validate(frame, lazy=True)
    except pandera.errors.SchemaErrors as error:
        raise InputError(_problems(error.failure_cases, rule)) from None
    return found


def _problems(failures: pd.DataFrame, rule: str) -> list[Problem]:
    """Return one problem per column and check, quoting a few of the values."""
    found = []
    failures = failures.assign(column=failures["column"].fillna("").astype(str))
    for (column, check), group in failures.groupby(["column", "check"], sort=True):
        values = sorted({str(value) for value in group["failure_case"]})
        more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
        rows = [int(row) for row in group["index"].dropna().head(_SHOWN)]
        where = f" (rows {', '.join(map(str, rows))}, ...)" if rows else ""
        found.append(Problem(
            rule=rule, where=str(column),
            message=f"{check} fails for {', '.join(values[:_SHOWN])}{more}{where}",
            remedy="correct the reader of this source, or take the rows out"))
    return found
