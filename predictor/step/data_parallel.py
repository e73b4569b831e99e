"""Gradient reduction, parameter gathering and the optimizer step, for every pipeline rank."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from predictor.lowering.batch import Batch, code
from predictor.lowering.groups import (
    Group, expert_gradient_group, expert_replica_group, expert_shard_group, gradient_group,
    pipeline_group, replica_group, shard_group,
)
from predictor.lowering.holdings import RankIndex, held_parameters, trained_share
from predictor.lowering.parts import Part, Stages
from predictor.lowering.tables import (
    CollectiveKind, CollectiveTable, Dtype, Floats, Ints, KernelKind, KernelTable, Phase,
)
from predictor.step.calibration import CoefficientColumns

REDUCE_BYTES = np.array([4.0, 2.0, 2.0])
"""Bytes per gradient by grad_reduce_dtype: fp32, bf16, fp16."""
OPTIMIZER_BYTES = {"adam": 34.0, "adam-8bit": 16.0, "sgd": 18.0, "muon": 26.0, "adafactor": 20.0}
"""Traffic per parameter of one fused step with fp32 masters: read gradient (4), read and write
master and both moments (24), write the 16-bit copy (2), read the gradient for its norm (4)."""
LAUNCHES_PER_STEP = 20.0
FIRST_BUCKET_BYTES, BUCKET_BYTES = 1024.0**2, 25 * 1024.0**2
"""Of DistributedDataParallel: its defaults (torch/nn/parallel/distributed.py)."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """The pipeline ranks of every row and what they train. Arrays have shape (ranks,)."""

    index: RankIndex
    dense: Floats
    """Trained dense parameters of the rank, over all its chunks."""
    expert: Floats
    """Trained parameters of routed experts."""
    held_dense: Floats
    """Trained or frozen: what FSDP gathers."""
    held_expert: Floats
    layers: Floats

    @property
    def row(self) -> Ints:
        """Row of the batch that each rank belongs to."""
        return self.index.row


@dataclass(frozen=True, slots=True)
class DataParallelTimes:
    """All arrays have shape (ranks,), seconds when nothing hides them."""

    reduce_s: Floats
    """Once per step (no FSDP): all-reduce or reduce-scatter of gradients."""
    tied_s: Floats
    """Once per step, after the flush: the first and the last stage sum the gradients of the
    embedding that they share (Megatron-LM finalize_model_grads.py)."""
    gather_s: Floats
    """Once per step: all-gather of updated parameters (distributed optimizer)."""
    optimizer_s: Floats
    fsdp_forward_s: Floats
    """Per micro-batch and rank: parameter all-gathers in forward."""
    fsdp_backward_gather_s: Floats
    """Per micro-batch and rank: parameter all-gathers in backward."""
    fsdp_reduce_s: Floats
    """Per micro-batch and rank: gradient reduce-scatters."""


def build_ranks(batch: Batch, stages: Stages) -> Ranks:
    """Sum what the chunks of every rank train."""
    index = RankIndex.of(batch, stages)
    held = held_parameters(batch, stages, index)
    share = trained_share(batch)[index.row]
    return Ranks(index=index, dense=held.dense * share, expert=held.expert * share,
                 held_dense=held.dense, held_expert=held.expert,
                 layers=index.total(stages.counts[:, Part.LAYER].astype(float)))


def calls_per_pass(batch: Batch, ranks: Ranks) -> Floats:
    """Return shape (ranks,): pieces in which gradients and parameters travel.

    FSDP moves one layer at a time, DeepSpeed's ZeRO-3 one module at a time (about four with
    weights in a layer); below stage 3 large buckets make the number of calls immaterial.
    """
    row = ranks.row
    modules = np.isin(batch.job.framework, [code("framework", "deepspeed"),
                                            code("framework", "megatron-deepspeed")])
    pieces = np.maximum(ranks.layers, 1.0) * np.where(modules[row], 4.0, 1.0)
    return np.where(batch.strategy.zero_stage[row] == 3, pieces, 1.0)


def collectives_of(batch: Batch, ranks: Ranks) -> list[CollectiveTable]:
    """Return the tables of: reduce among shards and among replicas, each of dense and of
    expert gradients; gather of dense and of expert parameters; tied embeddings.

    Each has one row per rank.

    Sizes are one piece (see :func:`calls_per_pass`) of a step's bytes, with FSDP of a
    micro-batch's; tied embeddings go in one piece.
    """
    row = ranks.row
    pieces = calls_per_pass(batch, ranks)
    strategy = batch.strategy
    bytes_per_grad = REDUCE_BYTES[strategy.grad_reduce_dtype[row]]
    sharded = strategy.zero_stage[row] >= 1
    gather_bytes = _gather_bytes(batch)[row]
    kind = np.where(sharded, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_REDUCE)
    gathers = np.full(len(row), int(CollectiveKind.ALL_GATHER))
    dense = _either(sharded, shard_group(batch).take(row), gradient_group(batch).take(row))
    expert = _either(sharded, expert_shard_group(batch).take(row),
                     expert_gradient_group(batch).take(row))
    between, between_experts = (
        np.where(sharded, size * bytes_per_grad / np.maximum(group.size, 1), 0.0)
        for size, group in ((ranks.dense, dense), (ranks.expert, expert)))
    all_reduce = np.full(len(row), int(CollectiveKind.ALL_REDUCE))
    fsdp = strategy.zero_stage[row] == 3
    gathered = (np.where(fsdp, ranks.held_dense, ranks.dense),
                np.where(fsdp, ranks.held_expert, ranks.expert))
    return [
        _table(batch, row, collective, group, size / pieces)
        for collective, group, size in (
            (kind, dense, ranks.dense * bytes_per_grad),
            (kind, expert, ranks.expert * bytes_per_grad),
            (all_reduce, replica_group(batch).take(row), between),
            (all_reduce, expert_replica_group(batch).take(row), between_experts),
            (gathers, dense, np.where(sharded, gathered[0] * gather_bytes, 0.0)),
            (gathers, expert, np.where(sharded, gathered[1] * gather_bytes, 0.0)),
            (all_reduce, _ends_group(batch).take(row), pieces * _tied_bytes(batch, ranks)))
    ]


def _either(chosen: NDArray[np.bool_], first: Group, second: Group) -> Group:
    """Return, row by row, one group or the other."""
    return Group(*[np.where(chosen, getattr(first, field.name), getattr(second, field.name))
                   for field in fields(Group)])


def _tied_bytes(batch: Batch, ranks: Ranks) -> Floats:
    """Shape (ranks,): gradients of a shared embedding on the first and the last stage."""
    row, strategy, model = ranks.row, batch.strategy, batch.model
    end = (ranks.index.rank == 0) | (ranks.index.rank == strategy.pp[row] - 1)
    shared = (model.tied_embeddings > 0) & (strategy.pp > 1) & (strategy.zero_stage < 2)
    size = batch.padded_vocab / strategy.tp * model.hidden_size \
        * REDUCE_BYTES[strategy.grad_reduce_dtype] * trained_share(batch)
    return np.asarray(np.where(end & shared[row], size[row], 0.0))


def _ends_group(batch: Batch) -> Group:
    """The first and the last rank of every pipeline; all pipelines reduce at once."""
    pipeline = pipeline_group(batch)
    two = np.minimum(2, pipeline.size)
    spread = np.minimum(pipeline.domains, 2)
    return Group(size=two, stride=pipeline.stride * np.maximum(pipeline.size - 1, 1),
                 ranks_per_domain=np.where(spread > 1, 1, two), domains=spread,
                 concurrent=np.maximum(1, np.minimum(batch.ranks_per_domain, pipeline.stride)))


def _gather_bytes(batch: Batch) -> Floats:
    """Bytes per parameter of a gather: 1 with fp8 parameters, else the compute type's."""
    precision = batch.strategy.precision
    full = (precision == code("precision", "fp32")) | (precision == code("precision", "tf32"))
    return np.where(full, 4.0, np.where(batch.strategy.fp8_param_gather > 0, 1.0, 2.0))


def _table(batch: Batch, row: Ints, kind: Ints, group: Group, size: Floats) -> CollectiveTable:
    return CollectiveTable(
        kind=kind, network=batch.network[row], bytes=np.where(group.size > 1, size, 0.0),
        group_size=group.size, ranks_per_domain=group.ranks_per_domain, domains=group.domains,
        stride=group.stride, concurrent=group.concurrent)


def optimizer_table(batch: Batch, ranks: Ranks) -> KernelTable:
    """Return one fused optimizer step per rank, over the rank's shard of the state."""
    row = ranks.row
    strategy = batch.strategy
    sharded = strategy.zero_stage[row] >= 1
    shards = np.where(sharded, np.maximum(strategy.dp_shard[row], 1), 1)
    expert_shards = np.where(sharded, np.maximum(expert_shard_group(batch).size[row], 1), 1)
    owned = ranks.dense / shards + ranks.expert / expert_shards
    per_parameter = np.array(list(OPTIMIZER_BYTES.values()))[batch.job.optimizer[row]]
    # The norm reads and the zeroing writes every gradient, sharded or not before ZeRO-2.
    whole = np.where(strategy.zero_stage[row] >= 2, owned, ranks.dense + ranks.expert)
    ones = np.ones(len(row))
    integers = np.zeros(len(row), dtype=np.int64)
    return KernelTable(
        kind=integers + KernelKind.OPTIMIZER, phase=integers + Phase.STEP,
        dtype=integers + Dtype.FP32, device=batch.device[row], batch=ones, m=owned, n=ones,
        k=0 * ones, causal=ones, flops=12.0 * owned, bytes=per_parameter * owned + 8.0 * whole,
        launches=LAUNCHES_PER_STEP * ones, portable=integers)


def data_parallel_times(
    batch: Batch, ranks: Ranks, coefficients: CoefficientColumns, collective_s: list[Floats],
    optimizer_s: Floats
) -> DataParallelTimes:
    """Assign the measured-or-modelled seconds of :func:`collectives_of` to what they are."""
    pieces = calls_per_pass(batch, ranks)
    *repeated, tied_s = collective_s
    dense, expert, *replicas, gather, expert_gather = (pieces * times for times in repeated)
    replica = replicas[0] + replicas[1]
    row = ranks.row
    fsdp = batch.strategy.zero_stage[row] == 3
    per_microbatch = batch.strategy.zero_stage[row] >= 2
    gathers = gather + expert_gather
    reduces = dense + expert
    beside = handling_times(batch, ranks, coefficients)
    gathers, reduces = gathers + beside.gather_s, reduces + beside.reduce_s
    again = np.where(batch.strategy.reshard_after_forward[row] > 0, 1.0, 0.0)
    offloaded = batch.strategy.optimizer_offload[row]
    return DataParallelTimes(
        reduce_s=np.where(per_microbatch, replica, reduces + replica),
        tied_s=tied_s,
        gather_s=np.where(fsdp, 0.0, gathers),
        optimizer_s=optimizer_s * (1 + HOST_OPTIMIZER_SLOWDOWN * offloaded),
        fsdp_forward_s=np.where(fsdp, gathers, 0.0),
        fsdp_backward_gather_s=np.where(fsdp, again * gathers, 0.0),
        fsdp_reduce_s=np.where(per_microbatch, reduces, 0.0))


@dataclass(frozen=True, slots=True)
class HandlingTimes:
    """What data parallelism does beside its collectives. Arrays have shape (ranks,), seconds."""

    gather_s: Floats
    """Each time that parameters are gathered (ZeRO-3)."""
    reduce_s: Floats
    """Each time that gradients are reduced."""


def parameter_bytes(batch: Batch, ranks: Ranks) -> Floats:
    """Return shape (ranks,): bytes of all parameters that a rank holds, in the type gathered."""
    held = ranks.held_dense + ranks.held_expert
    return np.asarray(held * _gather_bytes(batch)[ranks.row])


def gradient_bytes(batch: Batch, ranks: Ranks) -> Floats:
    """Return shape (ranks,): bytes of all gradients of a rank, in the type reduced."""
    per_gradient = REDUCE_BYTES[batch.strategy.grad_reduce_dtype[ranks.row]]
    return np.asarray((ranks.dense + ranks.expert) * per_gradient)


def buckets_of(reduced_bytes: Floats) -> Floats:
    """Return how many buckets DistributedDataParallel reduces: a small first one, then 25 MiB."""
    rest = np.maximum(reduced_bytes - FIRST_BUCKET_BYTES, 0.0)
    return np.asarray(1.0 + np.ceil(rest / BUCKET_BYTES))


def handling_times(batch: Batch, ranks: Ranks, coefficients: CoefficientColumns) -> HandlingTimes:
    """Return the copies, hooks and buckets that were measured on this machine."""
    row, own = ranks.row, coefficients.take(ranks.row)
    strategy = batch.strategy
    fsdp = strategy.zero_stage[row] == 3
    reduces = (strategy.dp[row] > 1) & ~fsdp
    layers = np.maximum(ranks.layers, 1.0)
    gathered, reduced = parameter_bytes(batch, ranks), gradient_bytes(batch, ranks)
    return HandlingTimes(
        np.where(fsdp, layers * own.gather_layer_s + gathered * own.gather_s_per_byte, 0.0),
        np.where(fsdp, layers * own.shard_layer_s + reduced * own.shard_s_per_byte,
                 np.where(reduces, buckets_of(reduced) * own.bucket_s
                          + reduced * own.bucket_s_per_byte, 0.0)))


HOST_OPTIMIZER_SLOWDOWN = 15.0
"""Host memory is 10 to 20 times slower than device memory, and so is an Adam step that lives in
it (ZeRO-Offload, arXiv 2101.06840, reports CPU-Adam at tens of GB/s)."""

