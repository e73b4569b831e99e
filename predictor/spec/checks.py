"""Collects every problem of one record, so that they are reported together."""

from __future__ import annotations

from dataclasses import dataclass, field

from predictor.spec.errors import InputError, Problem

STRICT: dict[str, object] = {"extra": "forbid", "strict": True, "allow_inf_nan": False}
"""How pydantic parses a record: no unknown keys, no conversions, no NaN."""

LARGEST = 2**50
"""No size, count or degree of a training job comes near; above it arithmetic is not trusted."""
FASTEST = 1e18
"""No rate of one GPU or link, in FLOP/s or bytes/s, comes near."""


@dataclass(slots=True)
class Checks:
    """A list of problems under construction."""

    problems: list[Problem] = field(default_factory=list)

    def add(self, rule: str, where: str, message: str, remedy: str) -> None:
        """Record one problem."""
        self.problems.append(Problem(rule=rule, message=message, remedy=remedy, where=where))

    def positive(self, where: str, value: float | None, largest: float = LARGEST) -> None:
        """Record a problem unless ``0 < value <= largest``."""
        if value is None or not 0 < value <= largest:
            self.add(
                "positive", where,
                f"{where} must be above 0 and at most {largest:g} and is {value}",
                "give a positive number",
            )

    def not_negative(self, where: str, value: float, largest: float = LARGEST) -> None:
        """Record a problem unless ``0 <= value <= largest``."""
        if not 0 <= value <= largest:
            self.add(
                "not-negative", where,
                f"{where} must be 0 or more and at most {largest:g} and is {value}",
                "give 0 or a positive number",
            )

    def within(self, where: str, value: float, low: float, high: float) -> None:
        """Record a problem unless ``low <= value <= high``."""
        if not low <= value <= high:
            self.add(
                "within", where, f"{where} must lie between {low} and {high} and is {value}",
                "give a value inside that range",
            )

    def divides(self, where: str, name: str, value: int, whole_name: str, whole: int) -> None:
        """Record a problem unless ``value`` divides ``whole``."""
        if value <= 0 or whole % value:
            self.add(
                f"{name.replace('_', '-')}-divides-{whole_name.replace('_', '-')}", where,
                f"{name} {value} must divide {whole_name} {whole}",
                f"choose a divisor of {whole}",
            )

    def raise_problems(self) -> None:
        """Raise :class:`InputError` when anything was recorded."""
        if self.problems:
            raise InputError(self.problems)
