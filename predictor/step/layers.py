"""What is predicted of whole layers, piece by piece, for a calibration to hold against timings."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from predictor.lowering.batch import Batch
from predictor.lowering.lower import lower
from predictor.lowering.parts import Part, build_stages
from predictor.lowering.tables import Columns, Floats, Phase
from predictor.step.calibration import CoefficientColumns
from predictor.step.compose import Timer, data_parallel
from predictor.step.data_parallel import build_ranks, gradient_bytes, parameter_bytes
from predictor.step.stage_times import CAUSES, launches_of, stage_times

_ENDS = (Part.EMBEDDING, Part.HEAD)


@dataclass(frozen=True, slots=True)
class LayerWork(Columns):
    """One micro-batch through the layers of every row. All arrays have shape (rows,).

    Seconds are those of the device, before anything hides.
    """

    kernel_forward_s: Floats
    kernel_backward_s: Floats
    launches_forward: Floats
    launches_backward: Floats
    tensor_forward_s: Floats
    """Collectives of tensor parallelism."""
    tensor_backward_s: Floats
    gather_s: Floats
    """Of the parameters, once (ZeRO-3)."""
    reduce_s: Floats
    """Of the gradients, once."""
    parameter_bytes: Floats
    gradient_bytes: Floats
    layers: Floats


def layer_work(batch: Batch, timer: Timer) -> LayerWork:
    """Return the work of the layers of every row, without embedding and head.

    Rows have no pipeline.
    """
    assert (batch.strategy.pp == 1).all()
    usual = CoefficientColumns.of(batch, (), None)
    every = build_stages(batch)
    counts = every.counts.copy()
    counts[:, _ENDS] = 0
    stages = replace(every, counts=counts)
    ranks = build_ranks(batch, stages)
    lowered = lower(batch)
    times = stage_times(batch, stages, lowered, usual,
                        kernel_s=timer.kernels(lowered.kernels, batch.gpus),
                        collective_s=timer.collectives(lowered.collectives, batch.networks))
    shared = data_parallel(batch, ranks, usual, timer)
    launches = launches_of(stages, lowered)
    backward = times.backward_s + times.weight_s
    compute, tensor = CAUSES.index("compute"), CAUSES.index("tp")
    return LayerWork(
        kernel_forward_s=times.forward_s[:, compute], kernel_backward_s=backward[:, compute],
        launches_forward=launches[:, Phase.FORWARD],
        launches_backward=launches.sum(axis=1) - launches[:, Phase.FORWARD],
        tensor_forward_s=times.forward_s[:, tensor], tensor_backward_s=backward[:, tensor],
        gather_s=shared.fsdp_forward_s, reduce_s=np.asarray(shared.reduce_s + shared.fsdp_reduce_s),
        parameter_bytes=parameter_bytes(batch, ranks), gradient_bytes=gradient_bytes(batch, ranks),
        layers=ranks.layers)
