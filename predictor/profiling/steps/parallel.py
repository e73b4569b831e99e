"""Tensor and data parallelism of a stage, as torchtitan applies torch's own."""

from __future__ import annotations

import contextlib
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from predictor.profiling.measure import Place
from predictor.profiling.operators.registry import torch_dtype
from predictor.profiling.steps.plan import StepPlan

AXES = ("pp", "dp", "tp")
"""Of the mesh of ranks; tensor-parallel ranks are neighbours."""


def mesh_of(plan: StepPlan, place: Place) -> Any:
    """Return the mesh of all ranks by :data:`AXES`; None for a rank alone."""
    return None if place.ranks == 1 else _mesh(place.device, plan.pp, plan.dp, plan.tp)


@lru_cache(maxsize=64)
def _mesh(device: str, *shape: int) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(device, shape, mesh_dim_names=AXES)


def autocast(plan: StepPlan, place: Place) -> Any:
    """Return what computes in the plan's type: FSDP2 casts by itself."""
    if plan.sizes.dtype == "fp32" or plan.zero_stage == 3:
        return contextlib.nullcontext()
    return torch.autocast(place.device, torch_dtype(plan.sizes.dtype))


def split_tensors(stage: nn.Module, mesh: Any) -> None:
    """Split a stage over tensor-parallel ranks, with sequence parallelism between the layers.

    Columns of q, k, v, gate and up and rows of out and down (Megatron-LM, arXiv 1909.08053,
    section 3); norms and what stages send are split along the sequence (arXiv 2205.05198,
    section 4.2.2); the vocabulary is split in the embedding, the head and the loss.
    """
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module,
    )

    columns, rows = ColwiseParallel(), RowwiseParallel(output_layouts=Shard(1))
    gathered = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    with_angles = PrepareModuleInput(input_layouts=(Shard(1), None),
                                     desired_input_layouts=(Replicate(), None))
    plan: dict[str, Any] = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "positions": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(0)),
        "norm": SequenceParallel(),
        "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1),
                                  use_local_output=False),
        "layers.*.attention_norm": SequenceParallel(), "layers.*.attention": with_angles,
        **{f"layers.*.attention.{name}": columns for name in ("q", "k", "v")},
        "layers.*.attention.out": rows, "layers.*.mlp_norm": SequenceParallel(),
        "layers.*.mlp": gathered, "layers.*.mlp.up": columns, "layers.*.mlp.gate": columns,
        "layers.*.mlp.down": rows}
    there = {name for name, _ in stage.named_modules()}
    numbered = {name.replace("*", str(layer)): style for name, style in plan.items()
                for layer in range(len(stage.layers))}
    parallelize_module(stage, mesh, {name: style for name, style in numbered.items()
                                     if name in there})


def replicate(stage: nn.Module, plan: StepPlan, mesh: Any) -> nn.Module:
    """Put a stage under DDP, or under FSDP2 with a unit for each layer."""
    if plan.zero_stage == 0:
        from torch.nn.parallel import DistributedDataParallel

        return DistributedDataParallel(  # the one buffer is constant: positions
            stage, process_group=mesh.get_group(), broadcast_buffers=False)
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy() if plan.sizes.dtype == "fp32" else MixedPrecisionPolicy(
        param_dtype=torch_dtype(plan.sizes.dtype), reduce_dtype=torch.float32)
    again = plan.pp == 1  # a pipeline would gather for every micro-batch
    for layer in stage.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=again)
    return fully_shard(stage, mesh=mesh, mp_policy=policy, reshard_after_forward=again)
