"""What context parallelism divides."""

from __future__ import annotations

from predictor.spec.job import TrainingJob
from predictor.spec.rules.rule import ALL, MEGATRON_CORE, Broken, Rule
from predictor.spec.strategy import Strategy

BALANCED = MEGATRON_CORE | {"torchtitan"}
"""Frameworks that give every rank one early and one late piece, to share causal work evenly."""


def sequence_divisible_by_twice_cp(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron training/arguments.py; torchtitan trainer.py."""
    if strategy.cp == 1 or job.seq_len % (2 * strategy.cp) == 0:
        return None
    return Broken(f"seq_len {job.seq_len} must be a multiple of 2 x cp = {2 * strategy.cp}",
                  f"choose a multiple of {2 * strategy.cp}", "seq_len")


def sequence_divisible_by_cp(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """DeepSpeed runtime/sequence_parallel/ulysses_sp.py."""
    if job.seq_len % strategy.cp == 0:
        return None
    return Broken(f"seq_len {job.seq_len} must be a multiple of cp {strategy.cp}",
                  f"choose a multiple of {strategy.cp}", "seq_len")


def ulysses_heads_divisible(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Each rank gets whole heads of the whole sequence (ulysses_sp.py)."""
    if strategy.cp == 1 or strategy.cp_comm_type != "a2a":
        return None
    parts, heads = strategy.tp * strategy.cp, job.model.num_attention_heads
    groups = job.model.num_query_groups or 1
    if heads % parts:
        return Broken(f"with cp_comm_type a2a, num_attention_heads {heads} must be a multiple of "
                      f"tp {strategy.tp} x cp {strategy.cp} = {parts}",
                      f"choose tp x cp that divides {heads}, or cp_comm_type p2p", "cp")
    if groups % parts and parts % groups and not job.model.kv_lora_rank:
        return Broken(f"with cp_comm_type a2a, num_query_groups {groups} and tp x cp = {parts}: "
                      "one must divide the other",
                      "choose another cp, or cp_comm_type p2p", "cp")
    return None


RULES = (
    Rule(sequence_divisible_by_twice_cp, BALANCED),
    Rule(sequence_divisible_by_cp, ALL - BALANCED),
    Rule(ulysses_heads_divisible),
)
