"""Seconds of fused attention."""

from __future__ import annotations

import numpy as np

from predictor.lowering.tables import GENERATIONS, Floats, GpuTable, Ints, KernelTable, Phase
from predictor.timing.device import LAUNCH_S, Regime, sustained_flops

_FORWARD = {"volta": 0.45, "ampere": 0.79, "ada": 0.8, "hopper": 0.85, "blackwell": 0.93,
            "cdna2": 0.45, "cdna3": 0.87}
_BACKWARD = {"volta": 0.35, "ampere": 0.63, "ada": 0.6, "hopper": 0.71, "blackwell": 0.75,
             "cdna2": 0.35, "cdna3": 0.7}
FORWARD = np.array([_FORWARD.get(name, 0.6) for name in GENERATIONS])
BACKWARD = np.array([_BACKWARD.get(name, 0.5) for name in GENERATIONS])
"""Rate of a long attention 128 wide against the sustained GEMM rate (FlashAttention-2 on Ampere,
cuDNN on Hopper and Blackwell: cudnn-frontend's benchmarks; Primus-Turbo on MI300X)."""
_PORTABLE = {"hopper": 0.51, "blackwell": 0.32}
PORTABLE_SHARE = np.array([_PORTABLE.get(name, 1.0) for name in GENERATIONS])
"""Rate of FlashAttention-2 over the vendor's kernels where the hardware needs its own instructions
to be fed: 350 against 650 TFLOP/s forward on H100 (FlashAttention-3, arXiv 2407.08608, figure 5);
GH200 in arXiv 2509.22832's data, B200 in cudnn-frontend's benchmarks."""
_NARROW = {"hopper": 0.47, "blackwell": 0.86}
NARROW_EXPONENT = np.array([_NARROW.get(name, 0.22) for name in GENERATIONS])
"""Loss with narrow heads, as (width / 128)^exponent: the exponentials per score stay while its
products shrink, and tensor rates grew per generation while exponential rates did not."""
PORTABLE_EXPONENT = 0.22
WIDE = 128.0
WIDE_SHARE = (0.95, 0.82)
"""Forward and backward rate of heads wider than 128, whose tiles shrink to fit in registers."""
WIDTH_STEP = 32.0
"""Heads are padded to the next multiple that a kernel is compiled for."""
QUERY_TILE = 128.0
FILL_KEYS = 200.0
"""Key tokens whose time a tile's start and end cost."""
QUANTISED_WAVES = 0.7
"""Share of the last wave's idle time that stays."""
MEMORY_SHARE = 0.8


def attention_times(table: KernelTable, gpus: GpuTable, regime: Regime = Regime.TRAINING) -> Floats:
    """Return the device seconds of each fused attention, shape (rows,)."""
    device = table.device
    generation = gpus.generation[device]
    share = np.where(table.phase == Phase.FORWARD, FORWARD[generation], BACKWARD[generation])
    share = share * np.where(table.portable > 0, PORTABLE_SHARE[generation], 1.0)
    rate = sustained_flops(table, gpus, regime) * share * _width_share(table, generation)
    slots = table.batch * np.ceil(table.m / QUERY_TILE) / gpus.sm_count[device]
    waves = np.maximum(1.0, QUANTISED_WAVES * np.ceil(slots) + (1 - QUANTISED_WAVES) * slots)
    # A causal tile computes the whole of its diagonal block.
    keys = np.maximum(table.n * table.causal, 1.0)
    extra = np.where(table.causal < 1.0, QUERY_TILE / 2, 0.0) + FILL_KEYS
    full = table.flops / rate * (1.0 + extra / keys) * waves / np.maximum(slots, 1e-9)
    traffic = table.bytes / (MEMORY_SHARE * gpus.memory_bandwidth_bytes_per_s[device])
    return np.asarray(np.maximum(full, traffic) + LAUNCH_S * table.launches)


def _width_share(table: KernelTable, generation: Ints) -> Floats:
    """Rate of a head width against that of 128."""
    width = table.k
    padded = np.ceil(np.maximum(width, 1.0) / WIDTH_STEP) * WIDTH_STEP
    exponent = np.where(table.portable > 0, PORTABLE_EXPONENT, NARROW_EXPONENT[generation])
    narrow = (np.minimum(padded, WIDE) / WIDE) ** exponent
    forward, backward = WIDE_SHARE
    wide = np.where(padded > WIDE, np.where(table.phase == Phase.FORWARD, forward, backward), 1.0)
    return np.asarray(width / padded * narrow * wide)
