"""How the batch must divide."""

from __future__ import annotations

from predictor.spec.job import TrainingJob
from predictor.spec.rules.rule import Broken, Rule
from predictor.spec.strategy import Strategy


def batch_divisible_by_replicas(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron num_microbatches_calculator.py; DeepSpeed runtime/config.py."""
    dp = strategy.dp or 1
    per_pass = strategy.micro_batch_size * dp
    if job.global_batch_size % per_pass == 0:
        return None
    return Broken(
        f"global_batch_size {job.global_batch_size} must be a multiple of micro_batch_size "
        f"{strategy.micro_batch_size} x dp {dp} = {per_pass}",
        f"choose a multiple of {per_pass}, or another micro_batch_size", "global_batch_size")


RULES = (Rule(batch_divisible_by_replicas),)
