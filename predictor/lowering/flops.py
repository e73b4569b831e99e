"""Floating-point operations that a model needs, whatever the strategy."""

from __future__ import annotations

import numpy as np

from predictor.lowering.batch import Batch, code
from predictor.lowering.parameters import part_parameters
from predictor.lowering.parts import ATTENTION_PARTS, Part, Stages
from predictor.lowering.shapes import Shapes, causal_share
from predictor.lowering.tables import Floats

CONVENTION = "6 x matmul parameters per token + attention, causal half; no recompute"
BACKWARD_FACTOR = 3.0
"""Forward, input gradient and weight gradient cost the same."""


def model_flops(batch: Batch, stages: Stages) -> Floats:
    """Return the FLOP of one step, shape (rows,): what MFU divides by.

    Active parameters only: of routed experts, the top-k share. Causal attention counts the half
    that is computed, a window its own share. LoRA counts what full training would.
    """
    forward = BACKWARD_FACTOR * _forward_flops_per_sample(batch, stages)
    return np.asarray(forward.sum(axis=1) * batch.job.global_batch_size)


def hardware_flops(batch: Batch, stages: Stages) -> Floats:
    """Return the FLOP of one step with recomputation, shape (rows,): what HFU divides by."""
    per_part = _forward_flops_per_sample(batch, stages)
    ends = per_part[:, Part.EMBEDDING] + per_part[:, Part.HEAD]
    layers = per_part.sum(axis=1) - ends
    strategy = batch.strategy
    full = strategy.recompute == code("recompute", "full")
    selective = strategy.recompute == code("recompute", "selective")
    core = (strategy.recompute_modules == 0) | (strategy.recompute_modules & 1 > 0)
    per_stage = np.maximum(1.0, batch.model.num_layers / (strategy.pp * strategy.vpp))
    limit = strategy.recompute_num_layers
    share = np.where(limit > 0, np.minimum(1.0, limit / per_stage), 1.0)
    counts = _counts(batch, stages)
    core_flops = (_attention_flops(batch) * counts[:, list(ATTENTION_PARTS)]).sum(axis=1)
    again = np.where(full, share * layers, np.where(selective & core, core_flops, 0.0))
    return np.asarray((BACKWARD_FACTOR * per_part.sum(axis=1) + again)
                      * batch.job.global_batch_size)


def _counts(batch: Batch, stages: Stages) -> Floats:
    """Shape (rows, parts): parts of the whole model."""
    counts = np.zeros((len(batch), stages.counts.shape[1]))
    np.add.at(counts, stages.row, stages.counts)
    return counts


def _forward_flops_per_sample(batch: Batch, stages: Stages) -> Floats:
    """Shape (rows, parts): forward FLOP of one sequence through all copies of each part."""
    model, counts = batch.model, _counts(batch, stages)
    parameters = part_parameters(batch)
    expert_total = parameters.expert * (batch.strategy.ep * batch.strategy.etp)[:, None]
    active = np.where(model.num_experts > 0,
                      model.moe_router_topk / np.maximum(model.num_experts, 1), 0.0)
    matmul = parameters.total - expert_total * (1 - active[:, None])
    matmul[:, Part.EMBEDDING] = 0.0
    matmul[:, Part.HEAD] = model.hidden_size.astype(float) * model.vocab_size
    tokens = np.broadcast_to(batch.job.seq_len.astype(float)[:, None], matmul.shape).copy()
    encoder = Shapes.of(batch, encoder=True).seq_len
    tokens[:, [Part.ENCODER_ATTENTION, Part.ENCODER_MLP]] = encoder[:, None]
    flops = 2.0 * matmul * tokens
    flops[:, list(ATTENTION_PARTS)] += _attention_flops(batch)
    return np.asarray(flops * counts)


def _attention_flops(batch: Batch) -> Floats:
    """Shape (rows, attention parts): 4 x queries x keys x heads x head width x computed share."""
    model = batch.model
    latent = model.kv_lora_rank > 0
    width = np.where(latent, (model.qk_nope_head_dim + model.qk_rope_head_dim
                              + model.v_head_dim) / 2, model.head_dim)
    decoder, encoder = Shapes.of(batch).seq_len, Shapes.of(batch, encoder=True).seq_len
    packed = np.where(batch.job.packed_seq_len > 0,
                      np.minimum(batch.job.packed_seq_len, decoder), decoder)
    none = np.zeros(len(batch))
    causal, window = model.causal.astype(float), model.sliding_window.astype(float)
    cases = ((decoder, packed, none, causal), (decoder, packed, window, causal),
             (decoder, encoder, none, none), (encoder, encoder, none, none))
    columns = [4.0 * queries * keys * model.num_attention_heads * width
               * causal_share(queries, keys, reach, is_causal)
               for queries, keys, reach, is_causal in cases]
    return np.stack(columns, axis=1)
