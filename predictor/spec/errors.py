"""What a user can be told.

The tree::

    PredictTimeError
      InputError (also ValueError)   what was asked is wrong: exit code 2
      NoFeasibleStrategyError        the question has no answer: exit code 3
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an input: which rule, where, what was found and what to change."""

    rule: str
    """Short kebab-case name of the rule, such as ``heads-divisible-by-tp``."""
    message: str
    """The rule in words with the values that break it."""
    remedy: str
    """What to change."""
    where: str = ""
    """Dotted path of the field, empty when several fields disagree."""

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.message}; {self.remedy} [{self.rule}]"


class PredictTimeError(Exception):
    """Root of every error that is addressed to a person."""


class InputError(PredictTimeError, ValueError):
    """An input breaks one or more rules; ``problems`` holds all of them."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @classmethod
    def of(cls, rule: str, message: str, remedy: str, where: str = "") -> InputError:
        """Return an error with a single problem."""
        return cls([Problem(rule=rule, message=message, remedy=remedy, where=where)])


class NoFeasibleStrategyError(PredictTimeError):
    """No strategy satisfies the rules, the constraints and the memory of the cluster."""
