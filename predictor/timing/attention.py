"""Seconds of fused attention."""

from __future__ import annotations

import numpy as np

from predictor.lowering.tables import GENERATIONS, Floats, GpuTable, KernelTable, Phase
from predictor.timing.device import LAUNCH_S, sustained_flops

_FORWARD = {"volta": 0.45, "ampere": 0.72, "ada": 0.7, "hopper": 0.82, "blackwell": 0.95,
            "cdna2": 0.45, "cdna3": 0.6}
_BACKWARD = {"volta": 0.35, "ampere": 0.58, "ada": 0.55, "hopper": 0.62, "blackwell": 0.78,
             "cdna2": 0.35, "cdna3": 0.45}
FORWARD = np.array([_FORWARD.get(name, 0.6) for name in GENERATIONS])
BACKWARD = np.array([_BACKWARD.get(name, 0.5) for name in GENERATIONS])
"""Rate of a long, wide attention against the sustained GEMM rate (FlashAttention-2 on Ampere,
cuDNN and FlashAttention-3 on Hopper and later)."""
_PORTABLE = {"hopper": 0.62, "blackwell": 0.35}
PORTABLE_SHARE = np.array([_PORTABLE.get(name, 1.0) for name in GENERATIONS])
"""Rate of FlashAttention-2 over the vendor's kernels where the hardware needs its own instructions
to be fed: 350 against 600 TFLOP/s forward on H100 (FlashAttention-3, arXiv 2407.08608, figure 5)."""
QUERY_TILE = 128.0
WIDTHS = np.array([32.0, 64.0, 96.0, 128.0, 160.0, 192.0, 256.0])
WIDTH_SHARE = np.array([0.7, 0.93, 0.9, 1.0, 0.8, 0.85, 0.9])


def attention_times(table: KernelTable, gpus: GpuTable) -> Floats:
    """Return the device seconds of each fused attention, shape (rows,)."""
    device = table.device
    generation = gpus.generation[device]
    share = np.where(table.phase == Phase.FORWARD, FORWARD[generation], BACKWARD[generation])
    share = share * np.where(table.portable > 0, PORTABLE_SHARE[generation], 1.0)
    rate = sustained_flops(table, gpus) * share * _width_share(table.k)
    blocks = table.batch * np.ceil(table.m / QUERY_TILE)
    slots = blocks / gpus.sm_count[device]
    waves = np.maximum(1.0, 0.5 * (np.ceil(slots) + slots))
    full = table.flops / rate * waves / np.maximum(slots, 1e-9)
    traffic = table.bytes / (0.8 * gpus.memory_bandwidth_bytes_per_s[device])
    return np.asarray(np.maximum(full, traffic) + LAUNCH_S * table.launches)


def _width_share(width: Floats) -> Floats:
    """Heads are padded to the next multiple of 32 that a kernel is compiled for."""
    at = np.minimum(np.searchsorted(WIDTHS, width), len(WIDTHS) - 1)
    return np.asarray(np.minimum(width / WIDTHS[at], 1.0) * WIDTH_SHARE[at])
