"""What expert parallelism needs."""

from __future__ import annotations

from predictor.spec.job import TrainingJob
from predictor.spec.rules.rule import ALL, DEEPSPEED, MEGATRON_CORE, Broken, Rule
from predictor.spec.strategy import Strategy


def expert_parallel_needs_experts(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron transformer_config.py."""
    etp = strategy.etp or 1
    if job.model.num_experts or (strategy.ep == 1 and etp == 1):
        return None
    return Broken(f"ep {strategy.ep} and etp {etp} need a model with experts",
                  "leave ep and etp out for a dense model", "ep")


def experts_divisible_by_ep(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron training/arguments.py; torchtitan decoder.py; DeepSpeed moe/layer.py."""
    experts = job.model.num_experts
    if experts % strategy.ep == 0:
        return None
    return Broken(f"num_experts {experts} must be a multiple of ep {strategy.ep}",
                  f"choose an ep that divides {experts}", "ep")


def expert_grid_divides_stage(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron parallel_state.py: world % (etp x ep x pp) == 0; cp is folded into the grid."""
    if job.model.num_experts == 0:
        return None
    etp = strategy.etp or 1
    grid, stage = etp * strategy.ep, strategy.tp * strategy.cp * (strategy.dp or 1)
    if stage % grid == 0:
        return None
    return Broken(f"etp {etp} x ep {strategy.ep} = {grid} must divide the {stage} GPUs of a "
                  "pipeline stage (tp x cp x dp)", f"choose etp x ep that divides {stage}", "ep")


def expert_grid_divides_shard(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """torchtitan parallel_dims.py: experts borrow from the sharded and tensor dimensions."""
    if strategy.ep == 1:
        return None
    shard = (strategy.dp_shard or 1) * strategy.tp
    if shard % (strategy.ep * (strategy.etp or 1)) == 0:
        return None
    return Broken(f"ep {strategy.ep} x etp {strategy.etp} must divide dp_shard x tp = {shard}",
                  f"choose an ep that divides {shard}", "ep")


def expert_parallel_inside_data_parallel(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """DeepSpeed utils/groups.py makes expert groups out of data-parallel groups."""
    dp = strategy.dp or 1
    if dp % strategy.ep == 0:
        return None
    return Broken(f"{job.framework} needs ep {strategy.ep} to divide dp {dp}",
                  f"choose an ep that divides {dp}", "ep")


def expert_overlap_allowed(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron transformer_config.py, overlap_moe_expert_parallel_comm."""
    if not strategy.ep_overlap:
        return None
    for wrong, message, remedy in (
        (strategy.ep == 1, "ep is 1", "raise ep"),
        (strategy.moe_dispatcher == "allgather", "moe_dispatcher is allgather",
         "choose moe_dispatcher alltoall"),
        (strategy.recompute == "full", "recompute is full", "choose recompute selective"),
        ("moe" in strategy.recompute_modules, "recompute_modules holds moe",
         "recompute moe_act instead"),
        (strategy.precision in ("fp32", "tf32"), f"precision is {strategy.precision}",
         "choose a 16-bit or 8-bit precision"),
    ):
        if wrong:
            return Broken(f"ep_overlap is not possible when {message}",
                          f"{remedy} or leave ep_overlap out", "ep_overlap")
    return None


def direct_dispatch_needs_expert_parallel(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron transformer_config.py: the flex dispatcher needs more than one expert rank."""
    if strategy.moe_dispatcher not in ("deepep", "hybridep") or not job.model.num_experts:
        return None
    if strategy.ep * (strategy.etp or 1) > 1:
        return None
    return Broken(f"moe_dispatcher {strategy.moe_dispatcher} needs ep x etp above 1",
                  "raise ep or choose moe_dispatcher alltoall", "moe_dispatcher")


RULES = (
    Rule(expert_parallel_needs_experts),
    Rule(experts_divisible_by_ep),
    Rule(expert_grid_divides_stage),
    Rule(expert_grid_divides_shard, ALL & {"torchtitan"}),
    Rule(expert_parallel_inside_data_parallel, DEEPSPEED),
    Rule(expert_overlap_allowed),
    Rule(direct_dispatch_needs_expert_parallel, MEGATRON_CORE),
)
