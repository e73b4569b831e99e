"""What prediction made of the rows of a table, before it is scored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from predictor.lowering.tables import Floats
from predictor.spec.errors import Problem
from predictor.spec.job import TrainingJob
from predictor.spec.strategy import Strategy

if TYPE_CHECKING:
    from predictor.timing.learned import LearnedTimer

DOES_NOT_FIT = "does-not-fit"
Progress = Callable[[int, int], None]
"""Called with the numbers of rows that are done and that there are."""


class Predictions(Protocol):
    """What a step predictor returns: see :class:`predictor.step.predict.StepPredictions`."""

    @property
    def step_time_s(self) -> Floats: ...  # noqa: D102
    @property
    def low_s(self) -> Floats: ...  # noqa: D102
    @property
    def high_s(self) -> Floats: ...  # noqa: D102
    @property
    def provenance(self) -> Any: ...  # noqa: D102
    @property
    def breakdown(self) -> dict[str, Floats]: ...  # noqa: D102
    @property
    def verdict(self) -> Any: ...  # noqa: D102
    @property
    def refused(self) -> Sequence[tuple[int, Sequence[Problem]]]: ...  # noqa: D102
    @property
    def assumed(self) -> Sequence[dict[str, Any]]: ...  # noqa: D102


StepPredictor = Callable[[Sequence[TrainingJob], Sequence[Strategy]], Predictions]


@dataclass(frozen=True, slots=True)
class Predictor:
    """What answers for the rows of a table."""

    steps: StepPredictor
    """For step times and memory."""
    timer: LearnedTimer | None = None
    """For kernels and collectives; the analytic models when None."""


@dataclass(slots=True)
class Outcome:
    """One entry per row of the table, in its order. Seconds or bytes; NaN where there is none."""

    measured: Floats
    predicted: Floats
    low: Floats
    high: Floats
    provenance: list[str]
    why: list[str]
    """Why the row is refused, empty when it is predicted."""
    kind: list[str]
    """Rule and field behind ``why``, alike for rows refused for the same reason."""
    verdict: list[str]
    breakdown: dict[str, Floats] = field(default_factory=dict)
    strategies: list[Hashable] = field(default_factory=list)
    """What was predicted, equal for identical configurations; empty where order is no question."""
    out_of_memory: np.ndarray[Any, np.dtype[np.bool_]] = field(
        default_factory=lambda: np.zeros(0, dtype=bool))
    """Whether the measured run ran out of memory."""

    assumed: Counter[str] = field(default_factory=Counter)
    """How many rows left each field open, so that a default stands in for it."""
    groups: list[str] = field(default_factory=list)
    """Group of each row where no column of the table names it; empty otherwise."""

    @classmethod
    def empty(cls, rows: int) -> Outcome:
        """Return an outcome in which nothing is measured or predicted yet."""
        def nothing() -> Floats:
            return np.full(rows, np.nan)

        return cls(nothing(), nothing(), nothing(), nothing(), [""] * rows, [""] * rows,
                   [""] * rows, [""] * rows, out_of_memory=np.zeros(rows, dtype=bool))

    def refuse(self, row: int, problems: Sequence[Problem]) -> None:
        """Record why a row is not predicted."""
        self.why[row] = "; ".join(f"{problem.message} [{problem.rule}]" for problem in problems)
        first = problems[0]
        self.kind[row] = " ".join(filter(None, (first.rule, first.where)))

    @property
    def refused(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether each row is refused."""
        return np.array([bool(why) for why in self.why], dtype=bool)

    @property
    def does_not_fit(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether each row is predicted to run out of memory."""
        return np.array([verdict == DOES_NOT_FIT for verdict in self.verdict], dtype=bool)

    def refusal_kinds(self) -> dict[str, int]:
        """Return how many rows were refused for each kind of reason, the commonest first."""
        return dict(Counter(filter(None, self.kind)).most_common())

    def refusal_examples(self) -> dict[str, int]:
        """Return the first row that was refused for each kind of reason."""
        first: dict[str, int] = {}
        for row, kind in enumerate(self.kind):
            if kind:
                first.setdefault(kind, row)
        return first
