"""Bytes on every pipeline rank: states, activations, buffers; allocated, reserved and in use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predictor.lowering.activations import PartActivations, part_activations
from predictor.lowering.batch import Batch, code
from predictor.lowering.holdings import RankIndex
from predictor.lowering.parts import Part, Stages
from predictor.lowering.tables import Floats, Ints
from predictor.memory.in_flight import held_microbatches
from predictor.memory.states import ModelStates, model_states

CATEGORIES = ("parameters_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes",
              "working_bytes", "buffers_bytes")
WORKSPACE_BYTES = 0.25 * 2**30
"""cuBLAS and Transformer Engine workspaces that the caching allocator hands out."""
FRAGMENTATION = 0.05
"""Reserved over allocated: 3 to 7 % in Megatron-LM runs with large tensors."""
CONTEXT_BYTES = 0.6 * 2**30
"""CUDA context with loaded kernels."""
NCCL_BYTES = 0.35 * 2**30
"""Channels and buffers of one communicator."""
TIGHT_SHARE = 0.05
"""Distance from the capacity within which the estimate's own error decides: ``tight``."""


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


def memory_of(batch: Batch, stages: Stages) -> MemoryTable:
    """Return the memory of every pipeline rank of every row."""
    ranks = RankIndex.of(batch, stages)
    states = model_states(batch, stages, ranks)
    activations, working = _activations(batch, stages, ranks, part_activations(batch))
    buffers = WORKSPACE_BYTES + states.gathered
    offloaded = 1 - batch.strategy.activation_offload[ranks.row]
    columns = (states.parameters, states.gradients, states.optimizer, activations * offloaded,
               working, buffers)
    categories = dict(zip(CATEGORIES, columns, strict=True))
    allocated = np.sum(columns, axis=0)
    return _table(batch, ranks, categories, np.asarray(allocated), states)


def _activations(batch: Batch, stages: Stages, ranks: RankIndex,
                 parts: PartActivations) -> tuple[Floats, Floats]:
    """Return what the micro-batches in flight keep, and what one layer needs on top."""
    counts = stages.counts.astype(float)
    saved = np.einsum("sp,sp->s", counts, parts.saved[stages.row])
    strategy, row = batch.strategy, stages.row
    full = strategy.recompute[row] == code("recompute", "full")
    layers = counts[:, Part.LAYER]
    limit = strategy.recompute_num_layers[row]
    share = np.where(limit > 0, np.minimum(1.0, limit / np.maximum(layers, 1)), 1.0) * full
    ends = [Part.EMBEDDING, Part.HEAD]
    of_ends = np.einsum("sp,sp->s", counts[:, ends], parts.saved[row][:, ends])
    inputs = layers * parts.stream[row]
    kept = of_ends + (1 - share) * (saved - of_ends) + share * inputs
    held = held_microbatches(batch, stages)
    head = (counts[:, Part.HEAD] > 0).astype(float)
    # The loss of one micro-batch at a time: its logits are freed before the next forward.
    logits = head * (parts.saved[:, Part.HEAD] + parts.working[:, Part.HEAD])[row]
    kept = kept - head * parts.saved[row, Part.HEAD]
    again = (share > 0) * _largest_layer(counts, parts.whole[row])
    layer_working = again + _largest_layer(counts, parts.working[row])
    working = np.maximum(logits, layer_working)
    return ranks.total(kept * held), ranks.most(working)


def _largest_layer(counts: Floats, per_part: Floats) -> Floats:
    """Bytes of the heaviest layer that a stage holds: an attention or scan, and an MLP or MoE."""
    there = (counts > 0) * per_part
    first = there[:, [Part.ATTENTION, Part.LOCAL_ATTENTION, Part.MAMBA]].max(axis=1)
    second = there[:, [Part.MLP, Part.MOE]].max(axis=1)
    return np.asarray(first + second)


def _table(batch: Batch, ranks: RankIndex, categories: dict[str, Floats], allocated: Floats,
           states: ModelStates) -> MemoryTable:
    strategy = batch.strategy
    dimensions = 1 + sum((getattr(strategy, name) > 1).astype(float)
                         for name in ("tp", "pp", "cp", "ep")) + (strategy.dp > 1)
    outside = CONTEXT_BYTES + NCCL_BYTES * dimensions
    reserved = allocated * (1 + FRAGMENTATION)
    device = reserved + outside[ranks.row]
    capacity = batch.gpus.usable_memory_bytes[batch.device]
    least = ranks.largest_of_row(allocated) + outside
    most = ranks.largest_of_row(device)
    verdict: NDArray[Any] = np.where(
        least > (1 + TIGHT_SHARE) * capacity, "does-not-fit",
        np.where(most > (1 - TIGHT_SHARE) * capacity, "tight", "fits"))
    return MemoryTable(
        row=ranks.row, categories=categories, allocated_bytes=allocated,
        reserved_per_rank_bytes=reserved, device_per_rank_bytes=device,
        peak_bytes=ranks.largest_of_row(allocated), last_rank_bytes=allocated[ranks.last_of_row],
        reserved_bytes=ranks.largest_of_row(reserved), device_bytes=most, capacity_bytes=capacity,
        verdict=verdict)
