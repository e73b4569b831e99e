"""One row of a measured table while it is being read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from predictor.spec.errors import InputError

Row = Mapping[str, Any]
"""Cells by column name; a column that the table lacks is absent."""

FORBIDDEN = frozenset({
    "id", "source", "source_ref", "family", "notes", "date", "rank_group", "tier", "step_time_s",
    "step_time_basis", "tokens_per_s_per_gpu", "model_tflops_per_gpu", "mfu", "consistency", "oom",
})
"""Columns that a prediction may not read: they hold or hint at the outcome."""


@dataclass(slots=True)
class Reading:
    """What was filled in while a row was read."""

    assumed: dict[str, Any] = field(default_factory=dict)

    def assume(self, name: str, value: Any, why: str) -> None:
        """Record a value that no cell states."""
        self.assumed[name] = {"value": value, "source": why}

    def missing(self, column: str) -> InputError:
        """Return the refusal of a row that lacks a field nothing can stand in for."""
        return InputError.of("missing-field", f"the column {column} is blank",
                             f"give {column}", column)


def configuration(row: Row) -> Row:
    """Return the row without the columns that a prediction may not read."""
    return {name: value for name, value in row.items()
            if name not in FORBIDDEN and not name.startswith("chk_")}
