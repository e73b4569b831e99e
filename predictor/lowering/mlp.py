"""Kernels of the dense feed-forward block."""

from __future__ import annotations

import numpy as np

from predictor.lowering.attention import emit_norm, emit_residual
from predictor.lowering.emitter import Emitter, module_mask
from predictor.lowering.parts import Part
from predictor.lowering.shapes import Shapes
from predictor.lowering.tables import Floats, KernelKind, Phase
from predictor.lowering.tensor_parallel import enter_block, leave_block

MODULE = module_mask("mlp")


def emit_mlp(emitter: Emitter, part: Part, shapes: Shapes) -> None:
    """Add one dense block: norm, up, activation, down, residual."""
    emit_norm(emitter, part, shapes)
    enter_block(emitter, part, shapes, module=MODULE)
    width = emitter.batch.model.ffn_hidden_size / shapes.tp
    emit_feed_forward(emitter, part, tokens=shapes.tokens, width=width, module=MODULE)
    leave_block(emitter, part, shapes)
    emit_residual(emitter, part, shapes)


def emit_feed_forward(
    emitter: Emitter, part: Part, *, tokens: Floats, width: Floats, module: int,
    count: Floats | float = 1.0,
) -> None:
    """Add up projection, activation and down projection of ``width`` inner columns."""
    hidden = emitter.batch.model.hidden_size.astype(float)
    ups = np.where(emitter.batch.model.gated_mlp > 0, 2.0, 1.0)
    emitter.linear(part, m=tokens, n=ups * width, k=hidden, count=count, module=module)
    emit_activation(emitter, part, elements=tokens * width, module=module, count=count)
    emitter.linear(part, m=tokens, n=hidden, k=width, count=count, module=module)


def emit_activation(
    emitter: Emitter, part: Part, *, elements: Floats, module: int, count: Floats | float = 1.0
) -> None:
    """Add GeLU, or SwiGLU's activation and product, over ``elements`` outputs."""
    flavour = emitter.flavour
    gated = emitter.batch.model.gated_mlp > 0
    forward = np.where(gated, flavour.gated_f, flavour.activation_f)
    backward = np.where(gated, flavour.gated_b, flavour.activation_b)
    for phase, accesses in ((Phase.FORWARD, forward), (Phase.BACKWARD, backward)):
        emitter.memory(KernelKind.ELEMENTWISE, part, phase, elements=elements, accesses=accesses,
                       launches=flavour.activation_launches, count=count, module=module)
