"""Fills what a strategy leaves open with the target framework's own defaults, and says so."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from predictor.spec.job import TrainingJob
from predictor.spec.strategy import Strategy
from predictor.spec.vocabulary import Implementation


@dataclass(frozen=True, slots=True)
class FrameworkDefaults:
    """What a framework does when nobody says otherwise."""

    implementation: Implementation
    grad_reduce_dtype: dict[str, str]
    """By precision; ``*`` for any other."""
    overlap_grad_reduce: bool
    overlap_param_gather: bool
    sequence_parallel: bool
    source: str


_MEGATRON_REDUCE = {"fp16": "fp16", "fp32": "fp32", "*": "fp32"}
"""Megatron-LM sets accumulate_allreduce_grads_in_fp32 with --bf16 (training/arguments.py)."""

FRAMEWORKS: dict[str, FrameworkDefaults] = {
    "megatron": FrameworkDefaults(
        "transformer-engine", _MEGATRON_REDUCE, False, False, False,
        "Megatron-LM training/arguments.py"),
    "megatron-deepspeed": FrameworkDefaults(
        "megatron-fused", {"bf16": "fp32", "*": "fp16"}, False, False, False,
        "Megatron-DeepSpeed arguments.py; DeepSpeed pipe/engine.py reduces after the flush"),
    "nemo": FrameworkDefaults(
        "transformer-engine", {"fp32": "fp32", "*": "bf16"}, True, True, True,
        "NeMo and Megatron-Bridge performance recipes (grad_reduce_in_fp32 = False)"),
    "torchtitan": FrameworkDefaults(
        "compiled", {"*": "fp32"}, True, True, True, "torchtitan config/configs.py"),
    "deepspeed": FrameworkDefaults(
        "eager", {"bf16": "bf16", "*": "fp16"}, True, True, False, "DeepSpeed config-json"),
    "llm-foundry": FrameworkDefaults(
        "eager", {"*": "fp32"}, True, True, False, "Composer FSDP mixed_precision=DEFAULT"),
    "libai": FrameworkDefaults("eager", {"*": "fp16"}, True, False, False, "LiBai configs/common"),
    "maxtext": FrameworkDefaults("compiled", {"*": "bf16"}, True, True, True, "XLA SPMD"),
    "huggingface": FrameworkDefaults("eager", {"*": "bf16"}, True, True, False, "Accelerate FSDP"),
    "nanotron": FrameworkDefaults("megatron-fused", {"*": "fp32"}, True, False, True,
                                  "nanotron config/parallelism_config.py"),
}

SPLITS_EXPERTS = frozenset({"megatron", "megatron-deepspeed"})
"""Frameworks that split experts like other matrices unless told otherwise (Megatron-Core
model_parallel_config.py); the recipes of Megatron-Bridge and NeMo set
expert_tensor_parallel_size 1, as do torchtitan's configurations."""


def resolve(job: TrainingJob, strategy: Strategy) -> tuple[TrainingJob, Strategy, dict[str, Any]]:
    """Return job and strategy without open fields, and ``assumed``: field -> value and source.

    Never raises: whether the result is legal is the business of :mod:`predictor.spec.rules`.
    """
    defaults = FRAMEWORKS[job.framework]
    assumed: dict[str, Any] = {}

    def fill(name: str, value: Any, source: str = defaults.source) -> None:
        if getattr(strategy, name) is None:
            changes[name] = value
            assumed[name] = {"value": value, "source": source}

    changes: dict[str, Any] = {}
    fill("schedule", "interleaved-1f1b" if strategy.vpp > 1 else "1f1b")
    sequence = defaults.sequence_parallel or strategy.tp_comm_overlap  # overlap needs it
    fill("sequence_parallel", bool(sequence) and strategy.tp > 1)
    fill("grad_reduce_dtype", _reduce_dtype(defaults, strategy))
    fill("overlap_grad_reduce", defaults.overlap_grad_reduce or strategy.zero_stage == 3)
    overlaps = changes.get("overlap_grad_reduce", strategy.overlap_grad_reduce)
    gathers = defaults.overlap_param_gather and strategy.zero_stage > 0 and overlaps
    fill("overlap_param_gather", gathers or strategy.zero_stage == 3)
    fill("tp_comm_overlap", False)
    fill("overlap_p2p", strategy.vpp > 1)
    splits = job.model.num_experts > 0 and job.framework in SPLITS_EXPERTS
    fill("etp", strategy.tp if splits else 1)
    if strategy.dp is None:
        replicas = job.cluster.num_gpus // (strategy.tp * strategy.pp * strategy.cp)
        changes["dp"] = max(1, replicas)
    if strategy.dp_shard is None:
        changes["dp_shard"] = int(changes.get("dp", strategy.dp) or 1) * strategy.cp
    if job.implementation is None:
        assumed["implementation"] = {"value": defaults.implementation, "source": defaults.source}
        job = replace(job, implementation=defaults.implementation)
    return job, replace(strategy, **changes), assumed


def _reduce_dtype(defaults: FrameworkDefaults, strategy: Strategy) -> str:
    precision = "bf16" if strategy.precision in ("fp8", "mxfp8", "nvfp4") else strategy.precision
    return defaults.grad_reduce_dtype.get(precision, defaults.grad_reduce_dtype["*"])
