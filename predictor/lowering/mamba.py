"""Kernels of a Mamba-2 block (arXiv 2405.21060)."""

from __future__ import annotations

import numpy as np

from predictor.lowering.attention import emit_norm, emit_residual
from predictor.lowering.emitter import Emitter
from predictor.lowering.parts import Part
from predictor.lowering.shapes import Shapes
from predictor.lowering.tables import KernelKind, Phase
from predictor.lowering.tensor_parallel import enter_block, leave_block

CHUNK = 256.0
"""Tokens of one chunk of the state-space-dual scan (mamba_ssm default)."""


def emit_mamba(emitter: Emitter, shapes: Shapes) -> None:
    """Add one block: norm, in projection, convolution, scan, gated norm, out projection."""
    part, model = Part.MAMBA, emitter.batch.model
    if not np.any(model.mamba_num_heads > 0):
        return
    used = (model.mamba_num_heads > 0).astype(float)
    heads = np.maximum(1.0, model.mamba_num_heads / shapes.tp)
    inner = heads * np.maximum(model.mamba_head_dim, 1)
    groups = np.maximum(1.0, model.mamba_num_groups / shapes.tp)
    states = np.maximum(model.mamba_state_dim, 1).astype(float)
    emit_norm(emitter, part, shapes)
    enter_block(emitter, part, shapes)
    emitter.linear(part, m=shapes.tokens, n=2 * inner + 2 * groups * states + heads,
                   k=shapes.hidden, count=used)
    convolved = shapes.tokens * (inner + 2 * groups * states)
    # Inside a chunk: scores and outputs; between chunks: states in and out (section 6).
    flops = 2.0 * shapes.tokens * (
        CHUNK * 0.5 * (groups * states + inner) + 2 * inner * states)
    traffic = emitter.element_bytes * shapes.tokens * (3 * inner + 2 * groups * states) \
        + 4.0 * shapes.tokens / CHUNK * inner * states * 4
    for phase, factor in ((Phase.FORWARD, 1.0), (Phase.BACKWARD, 2.5)):
        emitter.memory(KernelKind.ELEMENTWISE, part, phase, elements=convolved,
                       accesses=2.0 * factor, count=used)
        emitter.kernel(KernelKind.SCAN, part, phase, dtype=emitter.base_dtype,
                       m=shapes.tokens, n=inner, k=states, flops=factor * flops,
                       bytes=factor * traffic, launches=5.0, count=used)
    emit_norm(emitter, part, shapes, width=inner, tokens=shapes.tokens, count=used)
    emitter.linear(part, m=shapes.tokens, n=shapes.hidden, k=inner, count=used)
    leave_block(emitter, part, shapes)
    emit_residual(emitter, part, shapes)
