"""Seconds of one micro-batch through every pipeline stage, by cause."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from predictor.lowering.activations import part_activations
from predictor.lowering.batch import Batch, code
from predictor.lowering.flavour import FlavourColumns
from predictor.lowering.lower import Lowered
from predictor.lowering.parts import Part, Stages
from predictor.lowering.tables import CPU, GENERATIONS, Floats, Ints, Phase, Stream
from predictor.step.calibration import CoefficientColumns
from predictor.timing.overlap import exposed_s

CAUSES = ("compute", "tp", "cp", "ep", "overhead")
"""Why a stage takes time; ``overhead`` is waiting for the host to launch."""

TP_OVERLAP_EXPOSED = 0.35
"""Share of tensor-parallel collectives that stays visible with userbuffer or async-TP overlap: the
GEMM is cut into pieces whose first and last transfers have nothing to hide behind."""
CLOCK_SPREAD = 0.01
"""Standard deviation of the speed of GPUs of one model over its mean: 1 to 3 % in surveys of
clusters (Sinha et al., SC22, "Not All GPUs Are Created Equal")."""
HOST_PER_COLLECTIVE_S = 25e-6
"""Host time to enqueue one collective through torch.distributed."""
_HOST_SPEED = {"volta": 1.2, "ampere": 1.0, "hopper": 0.65, "blackwell": 0.7, "cpu": 0.0}
HOST_SPEED = np.array([_HOST_SPEED.get(name, 0.8) for name in GENERATIONS])
"""Host time relative to that of an A100 server: hosts are as old as the GPUs they carry. A CPU that
is itself the device dispatches within its operators' measured times."""
GRAPHED_SHARE = {"none": 0.0, "partial": 0.6, "full": 0.95}
"""Share of the launches that a CUDA graph replays without the host."""


BUSY = ("compute", "tp", "cp", "ep")
_PASSES = (Phase.FORWARD, Phase.RECOMPUTE, Phase.BACKWARD, Phase.WEIGHT)


@dataclass(frozen=True, slots=True)
class StageTimes:
    """All arrays have shape (stages, causes): seconds per micro-batch."""

    forward_s: Floats
    backward_s: Floats
    """Input gradients and recomputation."""
    weight_s: Floats
    """Weight gradients."""


def stage_times(
    batch: Batch, stages: Stages, lowered: Lowered, coefficients: CoefficientColumns, *,
    kernel_s: Floats, collective_s: Floats
) -> StageTimes:
    """Sum the operations of every stage and decide what is exposed.

    ``kernel_s`` and ``collective_s`` are the seconds of the unique operations.
    """
    unit = lowered.layer_row[stages.row]
    counts = stages.counts.astype(float)
    own = coefficients.take(stages.row)
    compute = np.einsum("sp,sph->sh", counts, lowered.sum_kernels(kernel_s)[unit])
    compute = compute * _slowest(batch.num_gpus[stages.row])[:, None]
    compute = compute * _by_phase(own.kernel_forward, own.kernel_backward)
    launches = launches_of(stages, lowered)
    comm = np.einsum("sp,sphc->shc", counts, lowered.sum_collectives(collective_s)[unit])
    calls = np.einsum("sp,sphc->sh", counts,
                      lowered.sum_collectives(np.ones_like(collective_s))[unit])
    share = _recomputed_share(batch, stages)
    busy = {phase: _busy(batch, stages, own, compute[:, phase], comm[:, phase])
            for phase in _PASSES}
    busy[Phase.RECOMPUTE] = busy[Phase.RECOMPUTE] * share[:, None]
    host = _host_s(batch, stages, own, launches, calls)
    host[:, Phase.RECOMPUTE] *= share
    times = _with_overhead(batch, stages, busy, host)
    _add_offload(batch, stages, times)
    return times


def launches_of(stages: Stages, lowered: Lowered) -> Floats:
    """Return shape (stages, phases): kernels that the host starts for one micro-batch."""
    return np.asarray(np.einsum(
        "sp,sph->sh", stages.counts.astype(float),
        lowered.sum_kernels(lowered.kernels.launches)[lowered.layer_row[stages.row]]))


def _by_phase(forward: Floats, backward: Floats) -> Floats:
    """Return shape (stages, phases); what is recomputed is a forward pass."""
    columns = [backward] * len(Phase)
    columns[Phase.FORWARD] = columns[Phase.RECOMPUTE] = forward
    return np.column_stack(columns)


def _add_offload(batch: Batch, stages: Stages, times: StageTimes) -> None:
    """Add what remains visible of activations that move to host memory and back.

    They leave beside forward and return beside backward.
    """
    share = batch.strategy.activation_offload[stages.row]
    if not share.any():
        return
    saved = np.einsum("sp,sp->s", stages.counts.astype(float),
                      part_activations(batch).saved[stages.row])
    copy_s = share * saved / batch.gpus.host_link_bytes_per_s[batch.device[stages.row]]
    last = CAUSES.index("overhead")
    behind = (times.backward_s + times.weight_s).sum(axis=1)
    times.forward_s[:, last] += exposed_s(times.forward_s.sum(axis=1), copy_s)
    times.backward_s[:, last] += exposed_s(behind, copy_s)


def _slowest(num_gpus: Ints) -> Floats:
    """Time of the slowest of ``num_gpus`` over the mean: everyone waits for it.

    The expected maximum of n normal deviates is about sqrt(2 ln n) standard deviations.
    """
    return np.asarray(1 + CLOCK_SPREAD * np.sqrt(2 * np.log(np.maximum(num_gpus, 1))))


def _recomputed_share(batch: Batch, stages: Stages) -> Floats:
    """Share of a stage's layers that full recompute covers (recompute_num_layers per stage)."""
    strategy = batch.strategy
    limit = strategy.recompute_num_layers[stages.row].astype(float)
    layers = np.maximum(stages.counts[:, Part.LAYER], 1).astype(float)
    limited = (limit > 0) & (strategy.recompute[stages.row] == code("recompute", "full"))
    return np.where(limited, np.minimum(1.0, limit / layers), 1.0)


def _busy(batch: Batch, stages: Stages, own: CoefficientColumns, compute: Floats, comm: Floats
          ) -> Floats:
    """Return shape (stages, BUSY): what the device does or waits for in one phase."""
    hidden = comm[:, [Stream.TP_HIDDEN, Stream.CP_HIDDEN, Stream.EP_HIDDEN]]
    total = hidden.sum(axis=1)
    # One window of computation hides them all: what remains is shared in proportion.
    left = exposed_s(compute, total, own.overlap_slowdown)
    visible = hidden * (left / np.maximum(total, 1e-30))[:, None]
    overlapped = batch.strategy.tp_comm_overlap[stages.row] > 0
    tp = np.where(overlapped, TP_OVERLAP_EXPOSED, 1.0) * own.tensor_collectives \
        * comm[:, Stream.TP] + visible[:, 0]
    cp = comm[:, Stream.CP] + visible[:, 1]
    ep = comm[:, Stream.EP] + visible[:, 2]
    return np.column_stack([compute, tp, cp, ep])


def _host_s(batch: Batch, stages: Stages, own: CoefficientColumns, launches: Floats,
            calls: Floats) -> Floats:
    """Return shape (stages, phases): the time the host takes to start one phase's work."""
    flavour, row = FlavourColumns(batch), stages.row
    graphed = np.array(list(GRAPHED_SHARE.values()))[batch.strategy.cuda_graphs[row]]
    speed = HOST_SPEED[batch.gpus.generation[batch.device[row]]][:, None]
    usual = speed * _by_phase(flavour.host_forward_s[row], flavour.host_backward_s[row])
    measured = _by_phase(own.host_forward_s, own.host_backward_s)
    per_launch = np.where(own.host_known[:, None] > 0, measured, usual)
    split = batch.strategy.tp[row] > 1
    per_launch = per_launch + np.where(
        split[:, None], _by_phase(own.tensor_forward_s, own.tensor_backward_s), 0.0)
    host = launches * per_launch + speed * calls * HOST_PER_COLLECTIVE_S
    return np.asarray((1 - graphed)[:, None] * host)


def _with_overhead(batch: Batch, stages: Stages, busy: dict[Phase, Floats],
                   host: Floats) -> StageTimes:
    """Add the time that the device waits for the host.

    The host runs ahead of the device until something synchronises them: with one stage that is
    the end of the step, in a pipeline every receive, so there each pass has a floor of its own.
    A CPU that computes itself never runs ahead.
    """
    ahead = host[:, Phase.FORWARD]
    behind = host[:, Phase.RECOMPUTE] + host[:, Phase.BACKWARD] + host[:, Phase.WEIGHT]
    forward = busy[Phase.FORWARD].sum(axis=1)
    backward = sum(busy[phase].sum(axis=1) for phase in _PASSES[1:])
    together = np.maximum(ahead + behind - forward - backward, 0.0)
    piped = batch.strategy.pp[stages.row] > 1
    share = ahead / np.maximum(ahead + behind, 1e-30)
    wait_forward = np.where(piped, np.maximum(ahead - forward, 0.0), together * share)
    wait_backward = np.where(piped, np.maximum(behind - backward, 0.0), together * (1 - share))
    alone = batch.gpus.generation[batch.device[stages.row]] == CPU
    wait_forward = np.where(alone, ahead, wait_forward)
    wait_backward = np.where(alone, behind, wait_backward)
    weight_share = host[:, Phase.WEIGHT] / np.maximum(behind, 1e-30)
    return StageTimes(
        np.column_stack([busy[Phase.FORWARD], wait_forward]),
        np.column_stack([busy[Phase.RECOMPUTE] + busy[Phase.BACKWARD],
                         wait_backward * (1 - weight_share)]),
        np.column_stack([busy[Phase.WEIGHT], wait_backward * weight_share]))
