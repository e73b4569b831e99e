"""Kernels of the two ends of a model: embedding, logits with loss, multi-token prediction."""

from __future__ import annotations

import numpy as np

from predictor.lowering.attention import emit_norm, uses_learned_positions
from predictor.lowering.emitter import Emitter
from predictor.lowering.parts import Part
from predictor.lowering.shapes import Shapes
from predictor.lowering.tables import CollectiveKind, KernelKind, Phase, Stream
from predictor.lowering.tensor_parallel import enter_block


def emit_embedding(emitter: Emitter, shapes: Shapes) -> None:
    """Add the lookup, learned positions, dropout, and the sum over vocabulary shards."""
    part = Part.EMBEDDING
    elements = shapes.tokens * shapes.hidden
    extra = np.where(uses_learned_positions(emitter), 4.0, 0.0)
    emitter.memory(KernelKind.EMBEDDING, part, Phase.FORWARD, elements=elements,
                   accesses=2.0 + extra, width=shapes.hidden, launches=4.0)
    emitter.memory(KernelKind.EMBEDDING, part, Phase.BACKWARD, elements=elements,
                   accesses=3.0 + extra / 2, width=shapes.hidden, launches=4.0,
                   count=1 - emitter.frozen)
    size = elements * emitter.element_bytes
    sharded = shapes.sequence_parallel
    for kind, phase, count in (
        (CollectiveKind.ALL_REDUCE, Phase.FORWARD, 1 - sharded),
        (CollectiveKind.REDUCE_SCATTER, Phase.FORWARD, sharded),
        (CollectiveKind.ALL_GATHER, Phase.BACKWARD, sharded),
    ):
        emitter.collective(kind, part, phase, Stream.TP, group=shapes.tensor, size_bytes=size,
                           count=count)


def emit_head(emitter: Emitter, shapes: Shapes) -> None:
    """Add the final norm, the logits GEMM and the vocabulary-parallel cross-entropy.

    The loss reduces the maximum, the target's logit and the sum of exponentials over the tensor
    group: three all-reduces of one fp32 number per token (Megatron-LM, cross_entropy.py).
    """
    part, flavour = Part.HEAD, emitter.flavour
    vocab = emitter.batch.padded_vocab / shapes.tp
    emit_norm(emitter, part, shapes)
    enter_block(emitter, part, shapes)
    emitter.linear(part, m=shapes.tokens, n=vocab, k=shapes.hidden, quantized=False)
    logits = shapes.tokens * vocab
    for phase, traffic in ((Phase.FORWARD, flavour.loss_bytes_f),
                           (Phase.BACKWARD, flavour.loss_bytes_b)):
        emitter.memory(KernelKind.CROSS_ENTROPY, part, phase, elements=logits, accesses=traffic,
                       element_bytes=1.0, width=vocab, launches=flavour.loss_launches)
    emitter.collective(CollectiveKind.ALL_REDUCE, part, Phase.FORWARD, Stream.TP,
                       group=shapes.tensor, size_bytes=4.0 * shapes.tokens, count=3.0)


def emit_mtp(emitter: Emitter, shapes: Shapes) -> None:
    """Add what a multi-token-prediction block needs besides its layer and logits: two norms and
    the projection of embedding and hidden state (DeepSeek-V3, arXiv 2412.19437, section 2.2)."""
    if not np.any(emitter.batch.model.mtp_num_layers > 0):
        return
    for _ in range(2):
        emit_norm(emitter, Part.MTP, shapes)
    emitter.linear(Part.MTP, m=shapes.tokens, n=shapes.hidden / shapes.tp, k=2 * shapes.hidden)
