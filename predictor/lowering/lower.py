"""From a batch of (job, strategy) to tables of unique kernels and collectives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from predictor.lowering.attention import emit_attention
from predictor.lowering.batch import Batch
from predictor.lowering.emitter import (
    Emitter, Incidence, collective_table, kernel_table, row_hash,
)
from predictor.lowering.ends import emit_embedding, emit_head, emit_mtp
from predictor.lowering.mamba import emit_mamba
from predictor.lowering.mlp import emit_mlp
from predictor.lowering.moe import emit_moe
from predictor.lowering.parts import NUM_PARTS, Part
from predictor.lowering.shapes import Shapes
from predictor.lowering.tables import (
    CollectiveTable, Floats, Ints, KernelTable, Phase, Stream,
)

NUM_PHASES = len(Phase)
NUM_STREAMS = len(Stream)

_LAYER_MODEL = (
    "hidden_size", "num_attention_heads", "vocab_size", "ffn_hidden_size", "num_query_groups",
    "head_dim", "gated_mlp", "normalization", "position_embedding", "causal",
    "parallel_residual", "sliding_window", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim",
    "qk_rope_head_dim", "v_head_dim", "num_experts", "moe_router_topk", "moe_ffn_hidden_size",
    "moe_shared_expert_ffn_hidden_size", "moe_latent_size", "mtp_num_layers", "mamba_num_heads",
    "mamba_head_dim", "mamba_state_dim", "mamba_num_groups", "num_encoder_layers",
)
_LAYER_STRATEGY = (
    "tp", "cp", "ep", "etp", "dp", "micro_batch_size", "sequence_parallel", "cp_comm_type",
    "recompute", "recompute_modules", "precision", "fp8_recipe", "ep_overlap",
    "moe_dispatcher",
)
_LAYER_JOB = (
    "seq_len", "encoder_seq_len", "packed_seq_len", "framework", "implementation",
    "attention_backend",
    "workload", "lora_rank", "moe_load_imbalance", "make_vocab_size_divisible_by",
)


@dataclass(frozen=True, slots=True)
class Lowered:
    """Unique operations of a batch and where they run.

    ``layer_row`` maps each row of the batch to the row of the incidences: strategies that differ
    only in what a layer cannot see (pipeline, data parallelism, ZeRO) share one.
    """

    kernels: KernelTable
    kernel_use: Incidence
    collectives: CollectiveTable
    collective_use: Incidence
    layer_row: Ints
    num_layer_rows: int

    def sum_kernels(self, per_kernel: Floats) -> Floats:
        """Return ``per_kernel`` (unique kernels,) summed into (layer rows, parts, phases)."""
        use = self.kernel_use
        index = (use.row * NUM_PARTS + use.part) * NUM_PHASES + use.phase
        return _sum(index, use.count * per_kernel[use.unique],
                    (self.num_layer_rows, NUM_PARTS, NUM_PHASES))

    def sum_collectives(self, per_collective: Floats) -> Floats:
        """Return (unique collectives,) summed into (layer rows, parts, phases, streams)."""
        use = self.collective_use
        index = ((use.row * NUM_PARTS + use.part) * NUM_PHASES + use.phase) * NUM_STREAMS \
            + use.stream
        return _sum(index, use.count * per_collective[use.unique],
                    (self.num_layer_rows, NUM_PARTS, NUM_PHASES, NUM_STREAMS))


def _sum(index: Ints, values: Floats, shape: tuple[int, ...]) -> Floats:
    total = np.bincount(index, weights=values, minlength=int(np.prod(shape)))
    return np.asarray(total.reshape(shape), dtype=np.float64)


def lower(batch: Batch) -> Lowered:
    """Return the kernels and collectives of one micro-batch through every part of every row."""
    key = np.column_stack(
        [getattr(batch.model, name) for name in _LAYER_MODEL]
        + [getattr(batch.strategy, name) for name in _LAYER_STRATEGY]
        + [getattr(batch.job, name) for name in _LAYER_JOB]
        + [batch.device, batch.network, batch.ranks_per_domain]).astype(float)
    _, first, layer_row = np.unique(row_hash(key), return_index=True, return_inverse=True)
    emitter = Emitter(batch.take(first))
    _emit_parts(emitter)
    emitter.add_recompute()
    kernels, kernel_use = kernel_table(emitter)
    collectives, collective_use = collective_table(emitter)
    return Lowered(kernels, kernel_use, collectives, collective_use, layer_row.ravel(),
                   len(first))


def _emit_parts(emitter: Emitter) -> None:
    model = emitter.batch.model
    shapes = Shapes.of(emitter.batch)
    emit_attention(emitter, Part.ATTENTION, shapes)
    if np.any(model.sliding_window > 0):
        emit_attention(emitter, Part.LOCAL_ATTENTION, shapes)
    if np.any(model.num_encoder_layers > 0):
        source = Shapes.of(emitter.batch, encoder=True)
        emit_attention(emitter, Part.CROSS_ATTENTION, shapes)
        emit_attention(emitter, Part.ENCODER_ATTENTION, source)
        emit_mlp(emitter, Part.ENCODER_MLP, source)
    emit_mlp(emitter, Part.MLP, shapes)
    emit_moe(emitter, shapes)
    emit_mamba(emitter, shapes)
    emit_embedding(emitter, shapes)
    emit_head(emitter, shapes)
    emit_mtp(emitter, shapes)
