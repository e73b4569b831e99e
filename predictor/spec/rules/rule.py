"""What a rule is: a named function that finds one thing wrong with a resolved pair."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, get_args

from predictor.spec.errors import Problem
from predictor.spec.job import TrainingJob
from predictor.spec.strategy import Strategy
from predictor.spec.vocabulary import Framework

ALL: frozenset[str] = frozenset(get_args(Framework))
MEGATRON_CORE = frozenset({"megatron", "nemo"})
"""Frameworks that train through Megatron-Core and share its argument checks."""
DEEPSPEED = frozenset({"deepspeed", "megatron-deepspeed"})


class Broken(NamedTuple):
    """How a pair breaks a rule."""

    message: str
    """The rule with the values that break it."""
    remedy: str
    where: str = ""


Check = Callable[[TrainingJob, Strategy], Broken | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """A check and the frameworks that enforce it. Its name is the function's, with hyphens."""

    check: Check
    frameworks: frozenset[str] = ALL

    @property
    def name(self) -> str:
        """Short kebab-case name, such as ``heads-divisible-by-tp``."""
        return self.check.__name__.replace("_", "-")


Table = dict[str, tuple[tuple[str, Check], ...]]


def by_framework(rules: Iterable[Rule]) -> Table:
    """Return, for each framework, the names and checks that hold there."""
    listed = tuple(rules)
    return {framework: tuple((rule.name, rule.check) for rule in listed
                             if framework in rule.frameworks)
            for framework in sorted(ALL)}


def problems(table: Table, job: TrainingJob, strategy: Strategy) -> tuple[Problem, ...]:
    """Return everything that ``table`` finds wrong with a resolved pair."""
    found: list[Problem] = []
    for name, check in table[job.framework]:
        broken = check(job, strategy)
        if broken is not None:
            found.append(Problem(name, broken.message, broken.remedy, broken.where))
    return tuple(found)
