"""Seconds of kernels that only move data."""

from __future__ import annotations

import numpy as np

from predictor.lowering.tables import Floats, GpuTable, KernelKind, KernelTable, Phase
from predictor.timing.device import LAUNCH_S

_SHARE = {
    KernelKind.NORM: (0.6, 0.5), KernelKind.SOFTMAX: (0.75, 0.75),
    KernelKind.ELEMENTWISE: (0.8, 0.8), KernelKind.EMBEDDING: (0.7, 0.4),
    KernelKind.CROSS_ENTROPY: (0.75, 0.75), KernelKind.OPTIMIZER: (0.8, 0.8),
    KernelKind.PERMUTE: (0.6, 0.6), KernelKind.SCAN: (0.5, 0.5),
}
FORWARD_SHARE = np.array([_SHARE.get(kind, (0.8, 0.8))[0] for kind in KernelKind])
BACKWARD_SHARE = np.array([_SHARE.get(kind, (0.8, 0.8))[1] for kind in KernelKind])
"""Share of the data sheet's memory bandwidth, by kind."""
VECTOR_FLOPS_SHARE = 0.5


def memory_bound_times(table: KernelTable, gpus: GpuTable) -> Floats:
    """Return the device seconds of each memory-bound kernel, shape (rows,)."""
    device = table.device
    forward = (table.phase == Phase.FORWARD) | (table.phase == Phase.STEP)
    share = np.where(forward, FORWARD_SHARE[table.kind], BACKWARD_SHARE[table.kind])
    moved = table.bytes / (share * gpus.memory_bandwidth_bytes_per_s[device])
    arithmetic = table.flops / (VECTOR_FLOPS_SHARE * gpus.peak_flops[device, table.dtype])
    return np.asarray(np.maximum(moved, arithmetic) + LAUNCH_S * table.launches)
