"""What a campaign measures: points, and what came of each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Cell = str | int | float | bool | None
"""What a specification or a row may hold: JSON's scalars."""
Row = Mapping[str, Cell]


class Kind(StrEnum):
    """What is measured, and by which module."""

    KERNEL = "kernel"
    """One operator on one device."""
    LAYER = "layer"
    """A whole transformer layer on one device."""
    COLLECTIVE = "collective"
    """One collective over a group of ranks, or several groups at once."""
    STEP = "step"
    """A training step of a small model, in processes of its own."""


class Status(StrEnum):
    """What came of a point. All of them are answers: none is measured again on resume."""

    OK = "ok"
    OUT_OF_MEMORY = "out_of_memory"
    UNSUPPORTED = "unsupported"
    """The device or the library has no such operation, data type or backend."""
    FAILED = "failed"
    """The measurement raised, took its process down, or ran out of time."""


class UnsupportedError(Exception):
    """A point that this device or library cannot run; the message says why, in one line."""


@dataclass(frozen=True, slots=True)
class Point:
    """One thing to measure."""

    kind: Kind
    spec: Row
    """What to run, in the words of the module that measures this kind."""
    ranks: int = 1
    """Processes that measure it together."""
    launch: int = 0
    """Number of the launch: equal points of different launches are measured anew."""
    timeout_s: float = field(default=120.0, compare=False)
    """After this long the processes are stopped and the point counts as failed."""

    @property
    def key(self) -> str:
        """Digest of everything that says what is measured: 32 hexadecimal digits."""
        content = [self.kind, dict(self.spec), self.ranks, self.launch]
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one point."""

    key: str
    status: Status
    rows: tuple[Row, ...] = ()
    """Rows of tables. ``table`` names the table (kernels, collectives, steps, layers, overlaps);
    the other cells are its columns."""
    message: str = ""
    """Why there are no rows, in one line."""
    seconds: float = 0.0
    """Wall clock that the point took, setting up included."""

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as JSON values."""
        return {"key": self.key, "status": str(self.status), "message": self.message,
                "seconds": self.seconds, "rows": [dict(row) for row in self.rows]}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Outcome:
        """Return the outcome that :meth:`to_json` wrote."""
        return cls(given["key"], Status(given["status"]), tuple(given["rows"]), given["message"],
                   given["seconds"])
