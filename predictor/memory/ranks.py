"""Bytes on every pipeline rank: states, activations, buffers; allocated, reserved and in use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predictor.lowering.activations import part_activations
from predictor.lowering.batch import Batch
from predictor.lowering.holdings import RankIndex
from predictor.lowering.parts import Stages
from predictor.lowering.tables import Floats, Ints
from predictor.memory.in_flight import held_microbatches
from predictor.memory.live import live_activations
from predictor.memory.states import model_states
from predictor.memory.stubs import stub_bytes

InFlight = Callable[[Batch, Stages], Floats]

CATEGORIES = ("parameters_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes",
              "working_bytes", "buffers_bytes")
WORKSPACE_BYTES = 64 * 2.0**20
"""Workspaces of cuBLAS and Transformer Engine, 32 MiB each on Hopper and later."""
FRAGMENTATION = 0.2
"""Of what comes and goes. Parameters and optimizer state are allocated once and leave no holes;
activations do. Megatron-LM and torchtitan runs reserve 0.1 to 0.5 of them beyond the peak."""
CONTEXT_BYTES = 0.6 * 2**30
"""CUDA context with loaded kernels."""
NCCL_BYTES = 0.35 * 2**30
"""Channels and buffers of one communicator."""
TIGHT_SHARE = 0.05
"""Distance below the capacity within which fragmentation and the estimate's own error decide:
``tight``."""


@dataclass(frozen=True, slots=True)
class MemoryTable:
    """Memory of every pipeline rank of every row, ragged like :class:`RankIndex`."""

    row: Ints
    """Shape (ranks,)."""
    categories: dict[str, Floats]
    """By :data:`CATEGORIES`, each of shape (ranks,); they sum to ``allocated_bytes``."""
    allocated_bytes: Floats
    """Shape (ranks,): the peak that torch.cuda.max_memory_allocated reports."""
    reserved_per_rank_bytes: Floats
    device_per_rank_bytes: Floats
    peak_bytes: Floats
    """Shape (rows,): most allocated on any rank."""
    last_rank_bytes: Floats
    """Shape (rows,): allocated on the last pipeline rank."""
    reserved_bytes: Floats
    """Shape (rows,): most that the caching allocator holds on any rank."""
    device_bytes: Floats
    """Shape (rows,): most in use on any GPU, as nvidia-smi reports it."""
    capacity_bytes: Floats
    """Shape (rows,): what the driver reports as usable."""
    verdict: NDArray[np.str_]
    """Shape (rows,): ``fits``, ``tight`` or ``does-not-fit``."""

    @property
    def headroom_bytes(self) -> Floats:
        """Shape (rows,): what the fullest GPU has left; negative when it lacks memory."""
        return self.capacity_bytes - self.device_bytes


def memory_of(batch: Batch, stages: Stages, in_flight: InFlight = held_microbatches) -> MemoryTable:
    """Return the memory of every pipeline rank of every row.

    ``in_flight`` returns the micro-batches whose activations every stage holds at its rank's peak,
    shape (stages,); by default a closed form of the schedule.
    """
    ranks = RankIndex.of(batch, stages)
    states = model_states(batch, stages, ranks)
    kept, working = live_activations(
        batch, stages, ranks, part_activations(batch), in_flight(batch, stages))
    activations = kept * (1 - batch.strategy.activation_offload[ranks.row])
    # Activations are gone when the optimizer steps: only what it needs beyond them counts.
    working = np.maximum(working + states.gathered, states.step - activations) - states.gathered
    buffers = WORKSPACE_BYTES + states.gathered + states.buckets + stub_bytes(batch, stages, ranks)
    columns = (states.parameters, states.gradients, states.optimizer, activations, working, buffers)
    categories = dict(zip(CATEGORIES, columns, strict=True))
    moving = activations + working + states.gathered
    return _table(batch, ranks, categories, np.asarray(np.sum(columns, axis=0)), moving)


def _table(batch: Batch, ranks: RankIndex, categories: dict[str, Floats], allocated: Floats,
           moving: Floats) -> MemoryTable:
    strategy = batch.strategy
    dimensions = 1 + sum((getattr(strategy, name) > 1).astype(float)
                         for name in ("tp", "pp", "cp", "ep")) + (strategy.dp > 1)
    outside = CONTEXT_BYTES + NCCL_BYTES * dimensions
    reserved = allocated + FRAGMENTATION * moving
    device = reserved + outside[ranks.row]
    capacity = batch.gpus.usable_memory_bytes[batch.device]
    least = ranks.largest_of_row(allocated) + outside
    most = ranks.largest_of_row(device)
    verdict: NDArray[Any] = np.where(
        least > capacity, "does-not-fit",
        np.where(most > (1 - TIGHT_SHARE) * capacity, "tight", "fits"))
    return MemoryTable(
        row=ranks.row, categories=categories, allocated_bytes=allocated,
        reserved_per_rank_bytes=reserved, device_per_rank_bytes=device,
        peak_bytes=ranks.largest_of_row(allocated), last_rank_bytes=allocated[ranks.last_of_row],
        reserved_bytes=ranks.largest_of_row(reserved), device_bytes=most, capacity_bytes=capacity,
        verdict=verdict)
