"""Parameters of every part, in all and on one rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from predictor.lowering.batch import Batch, code
from predictor.lowering.parts import ATTENTION_PARTS, NUM_PARTS, Part
from predictor.lowering.tables import Floats


@dataclass(frozen=True, slots=True)
class PartParameters:
    """Parameter counts. All arrays have shape (rows, parts)."""

    total: Floats
    """Of one part over all its shards, without the padding of the vocabulary."""
    dense: Floats
    """On one rank, everything but routed experts (tensor parallelism divides matrices)."""
    expert: Floats
    """On one rank, routed experts (expert and expert-tensor parallelism divide them)."""


def part_parameters(batch: Batch) -> PartParameters:
    """Return the parameters of every part of every row."""
    matrices = np.zeros((len(batch), NUM_PARTS))
    vectors = np.zeros_like(matrices)
    replicated = np.zeros_like(matrices)
    for part in ATTENTION_PARTS:
        matrices[:, part] = _attention_matrices(batch)
        replicated[:, part] = _latent_matrices(batch)
        vectors[:, part] = _norm(batch) + _attention_biases(batch)
    for part in (Part.MLP, Part.ENCODER_MLP):
        matrices[:, part] = _mlp_matrices(batch, batch.model.ffn_hidden_size)
        vectors[:, part] = _norm(batch) + _mlp_biases(batch)
    expert = np.zeros_like(matrices)
    expert[:, Part.MOE] = _expert_matrices(batch)
    matrices[:, Part.MOE] = _mlp_matrices(batch, batch.model.moe_shared_expert_ffn_hidden_size)
    vectors[:, Part.MOE] = _norm(batch) + _router(batch)
    matrices[:, Part.MAMBA] = _mamba_matrices(batch)
    vectors[:, Part.MAMBA] = _norm(batch)
    vectors[:, Part.MTP] = 2 * _norm(batch)
    matrices[:, Part.MTP] = 2.0 * batch.model.hidden_size**2
    tp = batch.strategy.tp.astype(float)[:, None]
    grid = (batch.strategy.ep * batch.strategy.etp).astype(float)[:, None]
    dense = matrices / tp + vectors + replicated
    total = matrices + vectors + replicated + expert
    _add_ends(batch, total, dense)
    return PartParameters(total=total, dense=dense, expert=expert / grid)


def _norm(batch: Batch) -> Floats:
    scale = np.where(batch.model.normalization == code("normalization", "layernorm"), 2, 1)
    width: Floats = (scale * batch.model.hidden_size).astype(float)
    return width


def _attention_matrices(batch: Batch) -> Floats:
    model = batch.model
    heads, hidden = model.num_attention_heads.astype(float), model.hidden_size
    plain = hidden * model.head_dim * (2 * heads + 2 * model.num_query_groups)
    query_width = heads * (model.qk_nope_head_dim + model.qk_rope_head_dim)
    query_in = np.where(model.q_lora_rank > 0, model.q_lora_rank, hidden)
    latent = (query_in * query_width
              + model.kv_lora_rank * heads * (model.qk_nope_head_dim + model.v_head_dim)
              + heads * model.v_head_dim * hidden)
    return np.where(model.kv_lora_rank > 0, latent, plain)


def _latent_matrices(batch: Batch) -> Floats:
    """Down projections of multi-latent attention, which every tensor-parallel rank holds."""
    model = batch.model
    down = model.hidden_size * (model.q_lora_rank + model.kv_lora_rank + model.qk_rope_head_dim)
    norms = model.q_lora_rank + model.kv_lora_rank
    return np.where(model.kv_lora_rank > 0, down + norms, 0).astype(float)


def _attention_biases(batch: Batch) -> Floats:
    model = batch.model
    width = model.head_dim * (model.num_attention_heads + 2 * model.num_query_groups)
    biases: Floats = model.add_bias_linear * (width + model.hidden_size).astype(float)
    return biases


def _mlp_matrices(batch: Batch, width: np.ndarray) -> Floats:
    projections = np.where(batch.model.gated_mlp > 0, 3, 2)
    matrices: Floats = projections * batch.model.hidden_size.astype(float) * width
    return matrices


def _mlp_biases(batch: Batch) -> Floats:
    model = batch.model
    width = np.where(model.gated_mlp > 0, 2, 1) * model.ffn_hidden_size + model.hidden_size
    biases: Floats = model.add_bias_linear * width.astype(float)
    return biases


def expert_width(batch: Batch) -> Floats:
    """Width of the tokens that routed experts see: the latent size where there is one."""
    model = batch.model
    return np.where(model.moe_latent_size > 0, model.moe_latent_size,
                    model.hidden_size).astype(float)


def _expert_matrices(batch: Batch) -> Floats:
    model = batch.model
    projections = np.where(model.gated_mlp > 0, 3, 2)
    matrices: Floats = (projections * expert_width(batch) * model.moe_ffn_hidden_size
                        * model.num_experts)
    return matrices


def _router(batch: Batch) -> Floats:
    model = batch.model
    latent = 2.0 * model.hidden_size * model.moe_latent_size
    router: Floats = model.hidden_size.astype(float) * model.num_experts + latent
    return router


def _mamba_matrices(batch: Batch) -> Floats:
    """In and out projections, short convolution and per-head scalars (arXiv 2405.21060)."""
    model = batch.model
    inner = (model.mamba_num_heads * model.mamba_head_dim).astype(float)
    states = 2 * model.mamba_num_groups * model.mamba_state_dim
    into = model.hidden_size * (2 * inner + states + model.mamba_num_heads)
    convolution = 5 * (inner + states)
    total: Floats = (into + convolution + 3 * model.mamba_num_heads + inner
                     + inner * model.hidden_size)
    return total


def _add_ends(batch: Batch, total: Floats, dense: Floats) -> None:
    """Embedding, learned positions, final norm and output layer.

    With tied embeddings the output layer adds parameters only where it lies on another pipeline
    rank, as a copy.
    """
    model, strategy = batch.model, batch.strategy
    hidden, tp = model.hidden_size.astype(float), strategy.tp
    learned = model.position_embedding == code("position_embedding", "learned")
    positions = np.where(learned, hidden * model.max_position_embeddings, 0.0)
    total[:, Part.EMBEDDING] = hidden * model.vocab_size + positions
    dense[:, Part.EMBEDDING] = hidden * batch.padded_vocab / tp + positions
    untied = model.tied_embeddings == 0
    copied = untied | (strategy.pp > 1)
    total[:, Part.HEAD] = np.where(untied, hidden * model.vocab_size, 0.0) + _norm(batch)
    dense[:, Part.HEAD] = np.where(copied, hidden * batch.padded_vocab / tp, 0.0) + _norm(batch)


def total_parameters(batch: Batch, part_counts: np.ndarray) -> Floats:
    """Return the parameters of whole models; ``part_counts`` has shape (rows, parts)."""
    counts = part_counts.astype(float).copy()
    counts[:, Part.EMBEDDING] = 1
    counts[:, Part.HEAD] = 1
    return np.asarray((part_parameters(batch).total * counts).sum(axis=1))
