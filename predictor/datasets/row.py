"""One row of a measured table while it is being read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from predictor.spec.errors import InputError, Problem

Row = Mapping[str, Any]
"""Cells by column name; a column that the table lacks is absent."""

FORBIDDEN = frozenset({
    "id", "family", "notes", "date", "rank_group", "tier", "step_time_s", "step_time_basis", "mfu",
    "consistency", "oom",
})
"""Columns that a prediction may not read: they hold or hint at the outcome."""
FORBIDDEN_STARTS, FORBIDDEN_ENDS = ("source", "chk_"), ("_per_gpu",)


@dataclass(slots=True)
class Reading:
    """What was filled in while a row was read."""

    assumed: dict[str, Any] = field(default_factory=dict)

    def assume(self, name: str, value: Any, why: str) -> None:
        """Record a value that no cell states."""
        self.assumed[name] = {"value": value, "source": why}

    def missing(self, *columns: str) -> InputError:
        """Return the refusal of a row that lacks fields nothing can stand in for."""
        return InputError(Problem("missing-field", f"the column {column} is blank",
                                  f"give {column}", column) for column in columns)


def may_be_read(column: str) -> bool:
    """Return whether a prediction may look into ``column``."""
    return not (column in FORBIDDEN or column.startswith(FORBIDDEN_STARTS)
                or column.endswith(FORBIDDEN_ENDS))


def configuration(row: Row) -> Row:
    """Return the row without the columns that a prediction may not read."""
    return {name: value for name, value in row.items() if may_be_read(name)}
