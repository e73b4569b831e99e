"""Seconds of one micro-batch through every pipeline stage, by cause."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from predictor.lowering.batch import Batch, code
from predictor.lowering.flavour import FlavourColumns
from predictor.lowering.lower import Lowered
from predictor.lowering.parts import Part, Stages
from predictor.lowering.tables import Floats, Phase, Stream
from predictor.timing.overlap import exposed_s

CAUSES = ("compute", "tp", "cp", "ep", "overhead")
"""Why a stage takes time; ``overhead`` is waiting for the host to launch."""

TP_OVERLAP_EXPOSED = 0.35
"""Share of tensor-parallel collectives that stays visible with userbuffer or async-TP overlap: the
GEMM is cut into pieces whose first and last transfers have nothing to hide behind."""
HOST_PER_COLLECTIVE_S = 25e-6
"""Host time to enqueue one collective through torch.distributed."""
GRAPHED_SHARE = {"none": 0.0, "partial": 0.6, "full": 0.95}
"""Share of the launches that a CUDA graph replays without the host."""


@dataclass(frozen=True, slots=True)
class StageTimes:
    """All arrays have shape (stages, causes): seconds per micro-batch."""

    forward_s: Floats
    backward_s: Floats
    """Input gradients and recomputation."""
    weight_s: Floats
    """Weight gradients."""


def stage_times(
    batch: Batch, stages: Stages, lowered: Lowered, *, kernel_s: Floats, collective_s: Floats
) -> StageTimes:
    """Sum the operations of every stage and decide what is exposed.

    ``kernel_s`` and ``collective_s`` are the seconds of the unique operations.
    """
    unit = lowered.layer_row[stages.row]
    counts = stages.counts.astype(float)
    compute = np.einsum("sp,sph->sh", counts, lowered.sum_kernels(kernel_s)[unit])
    launches = np.einsum(
        "sp,sph->sh", counts, lowered.sum_kernels(lowered.kernels.launches)[unit])
    comm = np.einsum("sp,sphc->shc", counts, lowered.sum_collectives(collective_s)[unit])
    calls = np.einsum("sp,sphc->sh", counts,
                      lowered.sum_collectives(np.ones_like(collective_s))[unit])
    share = _recomputed_share(batch, stages)
    parts = _Assembler(batch, stages, compute, launches, comm, calls)
    weight = parts.phase(Phase.WEIGHT)
    backward = parts.phase(Phase.BACKWARD) + share[:, None] * parts.phase(Phase.RECOMPUTE)
    return StageTimes(parts.phase(Phase.FORWARD), backward, weight)


def _recomputed_share(batch: Batch, stages: Stages) -> Floats:
    """Share of a stage's layers that full recompute covers (recompute_num_layers per stage)."""
    strategy = batch.strategy
    limit = strategy.recompute_num_layers[stages.row].astype(float)
    layers = np.maximum(stages.counts[:, Part.LAYER], 1).astype(float)
    limited = (limit > 0) & (strategy.recompute[stages.row] == code("recompute", "full"))
    return np.where(limited, np.minimum(1.0, limit / layers), 1.0)


class _Assembler:
    """Turns sums per phase and stream into exposed seconds by cause."""

    def __init__(self, batch: Batch, stages: Stages, compute: Floats, launches: Floats,
                 comm: Floats, calls: Floats) -> None:
        flavour = FlavourColumns(batch)
        row = stages.row
        self.compute, self.launches, self.comm, self.calls = compute, launches, comm, calls
        self.host_forward_s = flavour.host_forward_s[row]
        self.host_backward_s = flavour.host_backward_s[row]
        self.tp_exposed = np.where(batch.strategy.tp_comm_overlap[row] > 0,
                                   TP_OVERLAP_EXPOSED, 1.0)
        graphed = np.array(list(GRAPHED_SHARE.values()))
        self.launched = 1.0 - graphed[batch.strategy.cuda_graphs[row]]

    def phase(self, phase: Phase) -> Floats:
        """Return shape (stages, causes)."""
        compute = self.compute[:, phase]
        comm = self.comm[:, phase]
        hidden = comm[:, [Stream.TP_HIDDEN, Stream.CP_HIDDEN, Stream.EP_HIDDEN]]
        total = hidden.sum(axis=1)
        # One window of computation hides them all: what remains is shared in proportion.
        visible = hidden * (exposed_s(compute, total) / np.maximum(total, 1e-30))[:, None]
        tp = self.tp_exposed * comm[:, Stream.TP] + visible[:, 0]
        cp = comm[:, Stream.CP] + visible[:, 1]
        ep = comm[:, Stream.EP] + visible[:, 2]
        busy = compute + tp + cp + ep
        per_launch = self.host_forward_s if phase in (Phase.FORWARD, Phase.RECOMPUTE) \
            else self.host_backward_s
        host = self.launched * (self.launches[:, phase] * per_launch
                                + self.calls[:, phase] * HOST_PER_COLLECTIVE_S)
        overhead = np.maximum(host - busy, 0.0)
        return np.column_stack([compute, tp, cp, ep, overhead])
