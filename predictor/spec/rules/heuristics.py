"""What is legal but seldom meant: advice that can be switched off or made an error."""

from __future__ import annotations

from predictor.spec.job import TrainingJob
from predictor.spec.rules.rule import MEGATRON_CORE, Broken, Rule
from predictor.spec.strategy import Strategy


def tp_inside_node(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Tensor parallelism waits for the network in every layer when it leaves the fast links."""
    cluster = job.cluster
    domain = max(cluster.groups[0].gpus_per_node, cluster.levels[0].span)
    if strategy.tp <= domain:
        return None
    return Broken(f"tp {strategy.tp} leaves the {domain} GPUs that share fast links",
                  f"choose tp of at most {domain}", "tp")


def micro_batches_fill_pipeline(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """torchtitan distributed/pipeline_parallel.py warns of this."""
    per_pass = strategy.micro_batch_size * (strategy.dp or 1)
    micro_batches = job.global_batch_size // per_pass
    if micro_batches >= strategy.pp:
        return None
    return Broken(f"{micro_batches} micro-batches leave most of pp {strategy.pp} stages idle",
                  "lower pp or micro_batch_size, or raise global_batch_size", "pp")


def experts_with_tp_want_sequence_parallel(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron model_parallel_config.py warns of this."""
    if not job.model.num_experts or strategy.tp == 1 or strategy.sequence_parallel:
        return None
    return Broken(f"experts with tp {strategy.tp} and without sequence_parallel send every token "
                  f"{strategy.tp} times", "turn sequence_parallel on", "sequence_parallel")


def fsdp_with_tp_before_blackwell(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron training/arguments.py warns: both want another CUDA_DEVICE_MAX_CONNECTIONS."""
    if strategy.zero_stage < 3 or strategy.tp * strategy.cp == 1:
        return None
    if job.cluster.gpu.architecture not in ("ampere", "ada", "hopper"):
        return None
    return Broken(f"FSDP with tp {strategy.tp} and cp {strategy.cp} hides less communication on "
                  f"{job.cluster.gpu.architecture}", "choose zero_stage 1, or tp 1 and cp 1",
                  "zero_stage")


def interleaving_needs_chunks(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """One chunk for each rank is plain 1F1B."""
    if strategy.schedule != "interleaved-1f1b" or strategy.vpp > 1 or strategy.pp == 1:
        return None
    return Broken("schedule interleaved-1f1b with vpp 1 runs as 1f1b", "give vpp", "vpp")


def shard_size_is_used(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Without ZeRO nothing is sharded over data-parallel ranks."""
    replicas = (strategy.dp or 1) * strategy.cp
    if strategy.zero_stage > 0 or strategy.dp_shard in (None, replicas):
        return None
    return Broken(f"dp_shard {strategy.dp_shard} does nothing with zero_stage 0",
                  "choose zero_stage 1 to 3 or leave dp_shard out", "dp_shard")


RULES = (
    Rule(tp_inside_node),
    Rule(micro_batches_fill_pipeline),
    Rule(experts_with_tp_want_sequence_parallel, MEGATRON_CORE),
    Rule(fsdp_with_tp_before_blackwell, MEGATRON_CORE),
    Rule(interleaving_needs_chunks),
    Rule(shard_size_is_used),
)
