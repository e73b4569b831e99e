"""Collectives around a tensor-parallel block (Korthikanti et al. 2022, section 4)."""

from __future__ import annotations

import numpy as np

from predictor.lowering.emitter import Emitter
from predictor.lowering.parts import Part
from predictor.lowering.shapes import Shapes
from predictor.lowering.tables import CollectiveKind, Floats, Phase, Stream


def enter_block(emitter: Emitter, part: Part, shapes: Shapes, *, module: int = 0) -> None:
    """Gather the sequence before the first GEMM, and what that costs in backward.

    With sequence parallelism: all-gather forward, reduce-scatter of the input gradient, and the
    input gathered again for the weight gradient beside the input-gradient GEMM. Without it: the
    input gradient is all-reduced, by each column-parallel layer for itself even in a block whose
    outputs are summed together (GPT-NeoX megatron/mpu/layers.py): measured layers of GPT-20B show
    two all-reduces in backward and one in forward (arXiv 2509.22832).
    """
    size = _activation_bytes(emitter, shapes)
    gathered, plain = shapes.sequence_parallel, 1 - shapes.sequence_parallel
    add = emitter.collective
    add(CollectiveKind.ALL_GATHER, part, Phase.FORWARD, Stream.TP, group=shapes.tensor,
        size_bytes=size, count=gathered, module=module)
    add(CollectiveKind.REDUCE_SCATTER, part, Phase.BACKWARD, Stream.TP, group=shapes.tensor,
        size_bytes=size, count=gathered)
    add(CollectiveKind.ALL_GATHER, part, Phase.BACKWARD, Stream.TP_HIDDEN, group=shapes.tensor,
        size_bytes=size, count=gathered * (1 - emitter.frozen))
    add(CollectiveKind.ALL_REDUCE, part, Phase.BACKWARD, Stream.TP, group=shapes.tensor,
        size_bytes=size, count=plain)


def leave_block(emitter: Emitter, part: Part, shapes: Shapes, *, module: int = 0) -> None:
    """Sum the partial outputs of the last GEMM: all-reduce, or reduce-scatter and gather back."""
    size = _activation_bytes(emitter, shapes)
    gathered = shapes.sequence_parallel
    plain = (1 - gathered) * _separate(emitter, part)
    add = emitter.collective
    add(CollectiveKind.ALL_REDUCE, part, Phase.FORWARD, Stream.TP, group=shapes.tensor,
        size_bytes=size, count=plain, module=module)
    add(CollectiveKind.REDUCE_SCATTER, part, Phase.FORWARD, Stream.TP, group=shapes.tensor,
        size_bytes=size, count=gathered, module=module)
    add(CollectiveKind.ALL_GATHER, part, Phase.BACKWARD, Stream.TP, group=shapes.tensor,
        size_bytes=size, count=gathered)


def _separate(emitter: Emitter, part: Part) -> Floats:
    """0 for the attention of a parallel-residual block: its sum is made with the MLP's."""
    if part in (Part.MLP, Part.MOE, Part.HEAD, Part.EMBEDDING):
        return np.ones(len(emitter.batch))
    return np.asarray(1.0 - emitter.batch.model.parallel_residual, dtype=np.float64)


def _activation_bytes(emitter: Emitter, shapes: Shapes) -> Floats:
    size: Floats = emitter.element_bytes * shapes.tokens * shapes.hidden
    return size
