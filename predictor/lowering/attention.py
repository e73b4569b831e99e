"""Kernels of attention blocks: plain, grouped-query, multi-latent, windowed, cross, encoder."""

from __future__ import annotations

import numpy as np

from predictor.lowering.batch import code
from predictor.lowering.emitter import Emitter, module_mask
from predictor.lowering.parts import Part
from predictor.lowering.shapes import (
    Shapes, causal_share, is_word, local_groups, local_heads,
)
from predictor.lowering.tables import CollectiveKind, Floats, KernelKind, Phase, Stream
from predictor.lowering.tensor_parallel import enter_block, leave_block

FUSED_SOFTMAX_MATRICES = 4
CORE = module_mask("core_attn")
NORM = module_mask("layernorm")


def emit_attention(emitter: Emitter, part: Part, shapes: Shapes) -> None:
    """Add one attention block: norm, projections, core, output, residual."""
    emit_norm(emitter, part, shapes)
    enter_block(emitter, part, shapes)
    latent = (emitter.batch.model.kv_lora_rank > 0).astype(float)
    _plain_projections(emitter, part, shapes, 1 - latent)
    _latent_projections(emitter, part, shapes, latent)
    _rope(emitter, part, shapes)
    _core(emitter, part, shapes)
    _context_parallel(emitter, part, shapes)
    model = emitter.batch.model
    width = np.where(latent > 0, model.v_head_dim, model.head_dim) * local_heads(emitter.batch)
    emitter.linear(part, m=shapes.tokens, n=shapes.hidden, k=width, adapted=True)
    leave_block(emitter, part, shapes)
    emit_residual(emitter, part, shapes)


def emit_norm(
    emitter: Emitter, part: Part, shapes: Shapes, *, width: Floats | None = None,
    tokens: Floats | None = None, count: Floats | float = 1.0,
) -> None:
    """Add a layer or RMS norm over ``width`` (hidden size by default)."""
    flavour = emitter.flavour
    columns = shapes.hidden if width is None else np.maximum(width, 1.0)
    elements = (shapes.norm_tokens if tokens is None else tokens) * columns
    for phase, accesses in ((Phase.FORWARD, flavour.norm_f), (Phase.BACKWARD, flavour.norm_b)):
        emitter.memory(KernelKind.NORM, part, phase, elements=elements, accesses=accesses,
                       width=columns, launches=flavour.norm_launches, count=count, module=NORM)


def emit_residual(emitter: Emitter, part: Part, shapes: Shapes) -> None:
    """Add bias, dropout and residual addition."""
    flavour = emitter.flavour
    elements = shapes.norm_tokens * shapes.hidden
    for phase, accesses in ((Phase.FORWARD, flavour.residual_f),
                            (Phase.BACKWARD, flavour.residual_b)):
        emitter.memory(KernelKind.ELEMENTWISE, part, phase, elements=elements, accesses=accesses,
                       launches=flavour.residual_launches)


def _plain_projections(emitter: Emitter, part: Part, shapes: Shapes, count: Floats) -> None:
    head_dim = emitter.batch.model.head_dim.astype(float)
    heads, groups = local_heads(emitter.batch), local_groups(emitter.batch)
    if part == Part.CROSS_ATTENTION:
        source = Shapes.of(emitter.batch, encoder=True)
        emitter.linear(part, m=shapes.tokens, n=heads * head_dim, k=shapes.hidden, count=count)
        emitter.linear(part, m=source.tokens, n=2 * groups * head_dim, k=shapes.hidden,
                       count=count)
        return
    emitter.linear(part, m=shapes.tokens, n=(heads + 2 * groups) * head_dim, k=shapes.hidden,
                   count=count, adapted=True)


def _latent_projections(emitter: Emitter, part: Part, shapes: Shapes, count: Floats) -> None:
    """Multi-latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): down projections are
    held by every tensor-parallel rank and run on its share of the sequence."""
    model = emitter.batch.model
    heads = local_heads(emitter.batch)
    query = heads * (model.qk_nope_head_dim + model.qk_rope_head_dim)
    up = module_mask("mla_up_proj")
    compressed = count * (model.q_lora_rank > 0)
    query_rank = np.maximum(model.q_lora_rank, 1).astype(float)
    kv_rank = np.maximum(model.kv_lora_rank, 1).astype(float)
    linear = emitter.linear
    linear(part, m=shapes.norm_tokens, n=query_rank, k=shapes.hidden, count=compressed)
    linear(part, m=shapes.tokens, n=query, k=query_rank, count=compressed, module=up)
    linear(part, m=shapes.tokens, n=query, k=shapes.hidden, count=count - compressed)
    linear(part, m=shapes.norm_tokens, n=kv_rank + model.qk_rope_head_dim, k=shapes.hidden,
           count=count)
    linear(part, m=shapes.tokens, n=heads * (model.qk_nope_head_dim + model.v_head_dim),
           k=kv_rank, count=count, module=up)
    emit_norm(emitter, part, shapes, width=query_rank, count=compressed)
    emit_norm(emitter, part, shapes, width=kv_rank, count=count)
    # Keys are assembled from their latent and rotary halves: one copy each way.
    elements = shapes.tokens * heads * (model.qk_nope_head_dim + model.qk_rope_head_dim)
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        emitter.memory(KernelKind.ELEMENTWISE, part, phase, elements=elements, accesses=2.0,
                       count=count, module=up)


def _rope(emitter: Emitter, part: Part, shapes: Shapes) -> None:
    model, flavour = emitter.batch.model, emitter.flavour
    rotary = is_word(model.position_embedding, "position_embedding", "rope").astype(float)
    width = np.where(model.kv_lora_rank > 0, model.qk_rope_head_dim, model.head_dim)
    elements = shapes.tokens * (local_heads(emitter.batch) + local_groups(emitter.batch)) * width
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        emitter.memory(KernelKind.ELEMENTWISE, part, phase, elements=elements,
                       accesses=flavour.rope_f, launches=flavour.rope_launches, count=rotary)


def _core(emitter: Emitter, part: Part, shapes: Shapes) -> None:
    model, job = emitter.batch.model, emitter.batch.job
    latent = model.kv_lora_rank > 0
    head_dim = np.where(
        latent, (model.qk_nope_head_dim + model.qk_rope_head_dim + model.v_head_dim) / 2,
        model.head_dim).astype(float)
    keys = _key_length(emitter, part, shapes)
    window = np.where(part == Part.LOCAL_ATTENTION, model.sliding_window, 0).astype(float)
    is_causal = model.causal if part in (Part.ATTENTION, Part.LOCAL_ATTENTION) \
        else np.zeros_like(model.causal)
    share = causal_share(shapes.local_len, keys, window, is_causal.astype(float))
    flash = is_word(job.attention_backend, "attention_backend", "flash").astype(float)
    _flash(emitter, part, shapes, keys=keys, head_dim=head_dim, share=share, count=flash)
    _unfused(emitter, part, shapes, keys=keys, head_dim=head_dim, count=1 - flash)


def _key_length(emitter: Emitter, part: Part, shapes: Shapes) -> Floats:
    """Keys that each query may see: the sequence, a packed document, or the encoder's tokens."""
    if part == Part.CROSS_ATTENTION:
        return Shapes.of(emitter.batch, encoder=True).seq_len
    packed = emitter.batch.job.packed_seq_len
    return np.where(packed > 0, np.minimum(packed, shapes.seq_len), shapes.seq_len)


def _flash(
    emitter: Emitter, part: Part, shapes: Shapes, *, keys: Floats, head_dim: Floats,
    share: Floats, count: Floats,
) -> None:
    """Fused attention: 4 FLOP per score and head width forward, 10 backward (FlashAttention-2,
    arXiv 2307.08691: five products instead of two)."""
    pairs = shapes.samples * local_heads(emitter.batch)
    groups = shapes.samples * local_groups(emitter.batch)
    scores = pairs * shapes.local_len * keys * share
    row_bytes = emitter.element_bytes * head_dim
    traffic = row_bytes * 2 * (pairs * shapes.local_len + groups * keys)
    for phase, flops, passes in ((Phase.FORWARD, 4.0, 1.0), (Phase.BACKWARD, 10.0, 2.5)):
        emitter.kernel(
            KernelKind.ATTENTION, part, phase, dtype=emitter.base_dtype, batch=pairs,
            m=shapes.local_len, n=keys, k=head_dim, causal=share,
            flops=flops * scores * head_dim, bytes=passes * traffic, count=count, module=CORE,
            launches=1.0 if phase == Phase.FORWARD else 2.0,
            portable=emitter.flavour.portable_attention)


def _unfused(
    emitter: Emitter, part: Part, shapes: Shapes, *, keys: Floats, head_dim: Floats, count: Floats
) -> None:
    """Scores, masked softmax with dropout, context: the whole score matrix in memory."""
    pairs = shapes.samples * local_heads(emitter.batch)
    score = shapes.local_len, keys, head_dim
    context = shapes.local_len, head_dim, keys
    for phase, products in ((Phase.FORWARD, (score, context)),
                            (Phase.BACKWARD, (context, score, score, context))):
        for m, n, k in products:
            emitter.kernel(
                KernelKind.BATCHED_GEMM, part, phase, dtype=emitter.base_dtype, batch=pairs,
                m=m, n=n, k=k, flops=2 * pairs * m * n * k,
                bytes=emitter.element_bytes * pairs * (m * k + k * n + m * n),
                count=count, module=CORE)
    # Megatron-LM's kernel takes four score matrices per block and falls back to single operations
    # when they do not divide (fused_softmax.py, is_kernel_available).
    fused = is_word(emitter.batch.job.attention_backend, "attention_backend", "fused-softmax") \
        & (pairs % FUSED_SOFTMAX_MATRICES == 0)
    elements = pairs * shapes.local_len * keys
    # Softmax reads and writes; dropout reads, writes and keeps a one-byte mask. The eager chain
    # scales, masks, casts to fp32 and back around it.
    forward, backward = np.where(fused, 4.5, 14.0), np.where(fused, 5.5, 14.0)
    launches = np.where(fused, 2.0, 6.0)
    for phase, accesses in ((Phase.FORWARD, forward), (Phase.BACKWARD, backward)):
        emitter.memory(KernelKind.SOFTMAX, part, phase, elements=elements, accesses=accesses,
                       width=keys, launches=launches, count=count, module=CORE)


def _context_parallel(emitter: Emitter, part: Part, shapes: Shapes) -> None:
    """Ring passes keys and values beside attention, all-gather collects them, Ulysses turns heads
    into sequence and back with four all-to-alls (q, k, v, output)."""
    batch = emitter.batch
    if not np.any(batch.strategy.cp > 1) or part == Part.CROSS_ATTENTION:
        return
    model, strategy, cp = batch.model, batch.strategy, batch.strategy.cp.astype(float)
    latent = model.kv_lora_rank > 0
    key_width = np.where(latent, model.qk_nope_head_dim + model.qk_rope_head_dim, model.head_dim)
    value_width = np.where(latent, model.v_head_dim, model.head_dim)
    held = np.where(latent, local_heads(emitter.batch), local_groups(emitter.batch))
    keys_values = emitter.element_bytes * shapes.tokens * held * (key_width + value_width)
    queries = emitter.element_bytes * shapes.tokens * local_heads(emitter.batch) * (
        key_width + value_width)
    ring = is_word(strategy.cp_comm_type, "cp_comm_type", "p2p").astype(float)
    gather = is_word(strategy.cp_comm_type, "cp_comm_type", "all_gather").astype(float)
    ulysses = is_word(strategy.cp_comm_type, "cp_comm_type", "a2a").astype(float)
    add = emitter.collective
    for phase, volume in ((Phase.FORWARD, 1.0), (Phase.BACKWARD, 2.0)):
        add(CollectiveKind.SEND_RECV, part, phase, Stream.CP_HIDDEN, group=shapes.context,
            size_bytes=volume * keys_values, count=ring * (cp - 1), module=CORE)
        add(CollectiveKind.ALL_TO_ALL, part, phase, Stream.CP, group=shapes.context,
            size_bytes=(queries + keys_values) / 2, count=2 * ulysses, module=CORE)
    add(CollectiveKind.ALL_GATHER, part, Phase.FORWARD, Stream.CP, group=shapes.context,
        size_bytes=keys_values * cp, count=gather, module=CORE)
    add(CollectiveKind.ALL_GATHER, part, Phase.BACKWARD, Stream.CP, group=shapes.context,
        size_bytes=keys_values * cp, count=gather, module=CORE)
    add(CollectiveKind.REDUCE_SCATTER, part, Phase.BACKWARD, Stream.CP, group=shapes.context,
        size_bytes=keys_values * cp, count=gather, module=CORE)


def uses_learned_positions(emitter: Emitter) -> np.ndarray:
    """Return a mask of the rows whose embedding adds learned positions."""
    return np.asarray(emitter.batch.model.position_embedding
                      == code("position_embedding", "learned"))
