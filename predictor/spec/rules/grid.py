"""How the degrees of a strategy must fill the cluster."""

from __future__ import annotations

from predictor.spec.job import TrainingJob
from predictor.spec.rules.rule import ALL, Broken, Rule
from predictor.spec.strategy import Strategy

WITHOUT = {
    "llm-foundry": ("pp", "cp"),
    "huggingface": ("pp",),
    "libai": ("cp", "ep"),
}
"""Parallel dimensions that a framework does not have."""


def degrees_fill_cluster(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron parallel_state.initialize_model_parallel; torchtitan ParallelDims._validate."""
    dp = strategy.dp or 1
    product = strategy.tp * strategy.pp * strategy.cp * dp
    world = job.cluster.num_gpus
    if product == world:
        return None
    return Broken(
        f"tp {strategy.tp} x pp {strategy.pp} x cp {strategy.cp} x dp {dp} is {product} "
        f"but the cluster has {world} GPUs",
        f"choose tp, pp and cp whose product divides {world} and leave dp out, or change nodes")


def shards_divide_replicas(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Every copy of the sharded state has the same number of GPUs."""
    replicas = (strategy.dp or 1) * strategy.cp
    shard = strategy.dp_shard or replicas
    if replicas % shard == 0:
        return None
    return Broken(f"dp_shard {shard} must divide dp x cp = {replicas}",
                  f"choose a divisor of {replicas}", "dp_shard")


def dimension_in_framework(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Some frameworks have no pipeline, context or expert parallelism."""
    for name in WITHOUT[job.framework]:
        if getattr(strategy, name) > 1:
            return Broken(f"{job.framework} has no {name}, but {name} is "
                          f"{getattr(strategy, name)}",
                          f"set {name} to 1 or choose another framework", name)
    return None


RULES = (
    Rule(degrees_fill_cluster),
    Rule(shards_divide_replicas),
    Rule(dimension_in_framework, ALL & WITHOUT.keys()),
)
