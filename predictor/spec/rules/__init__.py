"""What each framework allows: one named rule for each thing that can be wrong.

Frameworks disagree, so every rule names the frameworks that enforce it. All rules take a pair
without open fields, as :func:`predictor.spec.resolve.resolve` returns it.
"""

from __future__ import annotations

from predictor.spec.errors import Problem
from predictor.spec.job import TrainingJob
from predictor.spec.rules import (
    attention,
    batch,
    context,
    experts,
    grid,
    limits,
    pipeline,
    precision,
    recompute,
    sharding,
    tensor,
)
from predictor.spec.rules import heuristics as advice
from predictor.spec.rules.rule import Rule, by_framework, problems
from predictor.spec.strategy import Strategy

__all__ = ["HARD", "SOFT", "check_strategy", "heuristics"]

HARD: tuple[Rule, ...] = (
    *grid.RULES, *batch.RULES, *tensor.RULES, *context.RULES, *experts.RULES, *pipeline.RULES,
    *sharding.RULES, *precision.RULES, *attention.RULES, *recompute.RULES, *limits.RULES,
)
SOFT: tuple[Rule, ...] = advice.RULES

_HARD, _SOFT = by_framework(HARD), by_framework(SOFT)


def check_strategy(job: TrainingJob, strategy: Strategy) -> tuple[Problem, ...]:
    """Return every rule of the job's framework that the resolved pair breaks; empty when legal."""
    return problems(_HARD, job, strategy)


def heuristics(job: TrainingJob, strategy: Strategy) -> tuple[Problem, ...]:
    """Return advice on a legal, resolved pair: legal things that are seldom meant."""
    return problems(_SOFT, job, strategy)
