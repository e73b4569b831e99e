"""Bytes of parameters, gradients and optimizer state by precision recipe and ZeRO stage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from predictor.lowering.batch import Batch
from predictor.lowering.groups import expert_shard_group
from predictor.lowering.holdings import RankIndex, held_parameters, trained_share
from predictor.lowering.parts import Stages
from predictor.lowering.tables import Floats
from predictor.memory.gathered import bucket_bytes, gathered_bytes
from predictor.memory.recipes import (
    gradient_bytes, optimizer_bytes, parameter_bytes, step_bytes,
)


@dataclass(frozen=True, slots=True)
class ModelStates:
    """All arrays have shape (ranks,), bytes."""

    parameters: Floats
    gradients: Floats
    optimizer: Floats
    gathered: Floats
    """Unsharded parameters and gradients of the layers in use (FSDP)."""
    buckets: Floats
    """Buffers in which gradients travel."""
    step: Floats
    """There during the optimizer step only."""


def model_states(batch: Batch, stages: Stages, ranks: RankIndex) -> ModelStates:
    """Return the states of every pipeline rank of every row."""
    held = held_parameters(batch, stages, ranks)
    row, strategy = ranks.row, batch.strategy
    stage = strategy.zero_stage[row]
    dense_shards = np.maximum(strategy.dp_shard[row], 1)
    expert_shards = np.maximum(expert_shard_group(batch).size[row], 1)
    trained = trained_share(batch)[row]

    def sharded(bytes_each: Floats, from_stage: int) -> Floats:
        dense = np.where(stage >= from_stage, held.dense / dense_shards, held.dense)
        expert = np.where(stage >= from_stage, held.expert / expert_shards, held.expert)
        return np.asarray((dense + expert) * bytes_each[row])

    gradient = gradient_bytes(batch)
    return ModelStates(
        parameters=sharded(parameter_bytes(batch), 3),
        gradients=trained * sharded(gradient, 2),
        optimizer=trained * sharded(optimizer_bytes(batch), 1),
        gathered=gathered_bytes(batch, stages, ranks, held, gradient[row]),
        buckets=bucket_bytes(batch, ranks, held, gradient[row]),
        step=trained * sharded(step_bytes(batch), 1))
