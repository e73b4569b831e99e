"""What sharded data parallelism (ZeRO, FSDP) excludes."""

from __future__ import annotations

from predictor.spec.job import TrainingJob
from predictor.spec.rules.rule import DEEPSPEED, MEGATRON_CORE, Broken, Rule
from predictor.spec.strategy import Strategy


def zero_with_pipeline(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """DeepSpeed runtime/pipe/engine.py refuses ZeRO-2 and ZeRO-3."""
    if strategy.zero_stage < 2 or strategy.pp == 1:
        return None
    return Broken(f"{job.framework} has no pipeline (pp {strategy.pp}) with zero_stage "
                  f"{strategy.zero_stage}", "choose zero_stage 1 or pp 1", "zero_stage")


def fsdp_without_pipeline(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron training/arguments.py: FSDP needs pp 1."""
    if strategy.zero_stage < 3 or strategy.pp == 1:
        return None
    return Broken(f"{job.framework} has no pipeline (pp {strategy.pp}) with FSDP (zero_stage 3)",
                  "choose zero_stage 1 or pp 1", "zero_stage")


def parameter_overlap_needs_sharding(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron training/arguments.py: only a distributed optimizer gathers parameters."""
    if not strategy.overlap_param_gather or strategy.zero_stage > 0:
        return None
    return Broken("overlap_param_gather needs zero_stage 1 or more and it is 0",
                  "choose zero_stage 1 or leave overlap_param_gather out", "overlap_param_gather")


def parameter_overlap_needs_gradient_overlap(
    job: TrainingJob, strategy: Strategy
) -> Broken | None:
    """Megatron training/arguments.py; FSDP has a gather of its own."""
    if not strategy.overlap_param_gather or strategy.overlap_grad_reduce:
        return None
    if strategy.zero_stage == 3:
        return None
    return Broken("overlap_param_gather needs overlap_grad_reduce",
                  "turn overlap_grad_reduce on or overlap_param_gather off",
                  "overlap_param_gather")


RULES = (
    Rule(zero_with_pipeline, DEEPSPEED),
    Rule(fsdp_without_pipeline, MEGATRON_CORE),
    Rule(parameter_overlap_needs_sharding, MEGATRON_CORE),
    Rule(parameter_overlap_needs_gradient_overlap, MEGATRON_CORE),
)
