"""Bytes of parameters, gradients and optimizer state by precision recipe and ZeRO stage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from predictor.lowering.batch import WORDS, Batch, code
from predictor.lowering.groups import expert_gradient_group
from predictor.lowering.holdings import RankIndex, held_parameters, is_frozen, trained_share
from predictor.lowering.parameters import part_parameters
from predictor.lowering.parts import Part, Stages
from predictor.lowering.tables import Floats

OPTIMIZER_STATE_BYTES = {"adam": 8.0, "adam-8bit": 2.0, "sgd": 4.0, "muon": 4.0, "adafactor": 0.1}
"""Per trained parameter beside the fp32 master copy (ZeRO, arXiv 1910.02054, section 3.1)."""
MASTER_BYTES = 4.0
FP8_CACHE_BYTES = 1.0
"""Eight-bit copies of the weights that Transformer Engine keeps beside 16-bit ones."""
GRADIENT_BYTES = np.array([4.0, 2.0, 2.0])
"""Main gradients by grad_reduce_dtype: fp32, bf16, fp16."""
LIVE_UNITS = 2.0
"""FSDP units gathered at once: the one that runs and the one prefetched."""
DEEPSPEED = ("deepspeed", "megatron-deepspeed")
"""Frameworks that keep the 16-bit gradients beside fp32 sums (DeepSpeed bf16_optimizer.py)."""
NATIVE_FSDP = ("torchtitan", "llm-foundry", "huggingface", "maxtext")
"""Frameworks whose sharded parameters are the fp32 master copy itself."""


@dataclass(frozen=True, slots=True)
class ModelStates:
    """All arrays have shape (ranks,), bytes."""

    parameters: Floats
    gradients: Floats
    optimizer: Floats
    gathered: Floats
    """Unsharded parameters and gradients of the layers in use (FSDP)."""


def model_states(batch: Batch, stages: Stages, ranks: RankIndex) -> ModelStates:
    """Return the states of every pipeline rank of every row."""
    held = held_parameters(batch, stages, ranks)
    row, strategy = ranks.row, batch.strategy
    stage = strategy.zero_stage[row]
    dense_shards = np.maximum(strategy.dp_shard[row], 1)
    expert_shards = np.maximum(expert_gradient_group(batch).size[row], 1)
    precision = strategy.precision
    wide = np.isin(precision, [code("precision", "fp32"), code("precision", "tf32")])[row]
    native = np.isin(batch.job.framework, [code("framework", name) for name in NATIVE_FSDP])[row]
    master_only = wide | (native & (stage == 3))
    trained = trained_share(batch)[row]

    def sharded(bytes_each: Floats | float, from_stage: int) -> Floats:
        dense = np.where(stage >= from_stage, held.dense / dense_shards, held.dense)
        expert = np.where(stage >= from_stage, held.expert / expert_shards, held.expert)
        return np.asarray((dense + expert) * bytes_each)

    narrow = (precision >= code("precision", "fp8"))[row]
    frozen = is_frozen(batch)[row]
    eight_bit = np.where(frozen, FP8_CACHE_BYTES, FP8_CACHE_BYTES + np.where(
        strategy.fp8_param_gather[row] > 0, 1.0, 2.0))
    compute = np.where(wide, 4.0, np.where(narrow, eight_bit, 2.0))
    parameters = np.where(master_only & ~wide, 0.0, sharded(compute, 3))
    gradient = np.where(wide, 4.0, GRADIENT_BYTES[strategy.grad_reduce_dtype[row]])
    gradient = np.where(native & (stage == 3), 4.0, gradient)
    twice = np.isin(batch.job.framework, [code("framework", name) for name in DEEPSPEED])[row]
    gradient = gradient + np.where(twice & ~wide & (gradient == 4.0), 2.0, 0.0)
    state = np.array([OPTIMIZER_STATE_BYTES[name] for name in WORDS["optimizer"]])
    per_parameter = state[batch.job.optimizer[row]] + np.where(wide, 0.0, MASTER_BYTES)
    kept = 1 - strategy.optimizer_offload[row]
    unit = _largest_layer(batch)[row] * np.where(wide, 4.0, 2.0)
    gathered = np.where(stage == 3, LIVE_UNITS * unit + unit * gradient / 2.0, 0.0)
    return ModelStates(
        parameters=np.asarray(parameters), gradients=trained * sharded(gradient, 2),
        optimizer=trained * kept * sharded(per_parameter, 1), gathered=np.asarray(gathered))


def _largest_layer(batch: Batch) -> Floats:
    """Return shape (rows,): parameters of the heaviest layer, the unit that FSDP gathers."""
    parameters = part_parameters(batch)
    each = parameters.dense + parameters.expert
    mixer = each[:, [Part.ATTENTION, Part.MAMBA]].max(axis=1)
    width = np.where(batch.model.num_experts > 0, each[:, Part.MOE], each[:, Part.MLP])
    return np.asarray(mixer + width)
