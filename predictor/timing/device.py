"""What a GPU sustains in a long training run, against its data sheet."""

from __future__ import annotations

import numpy as np

from predictor.lowering.tables import GENERATIONS, Dtype, Floats, GpuTable, KernelTable

LAUNCH_S = 2.5e-6
"""Device time between the end of one kernel and the start of the next on one stream."""
_SUSTAINED = {"volta": 0.82, "turing": 0.7, "ampere": 0.82, "ada": 0.75, "hopper": 0.70,
              "blackwell": 0.48, "cdna2": 0.55, "cdna3": 0.52, "cdna4": 0.5}
SUSTAINED = np.array([_SUSTAINED.get(name, 0.7) for name in GENERATIONS])
"""Share of the 16-bit tensor peak that large GEMMs reach while a training step draws full power."""
_TDP_W = {"volta": 300.0, "ampere": 400.0, "hopper": 700.0, "blackwell": 1000.0}
REFERENCE_TDP_W = np.array([_TDP_W.get(name, 0.0) for name in GENERATIONS])
TDP_EXPONENT = 0.5
"""Dynamic power grows with clock x voltage squared and voltage with clock: clock ~ power^(1/3)
to power^(1/2)."""
NARROW_SHARE = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.85])
"""By Dtype, of the type's own peak: 8-bit and 4-bit products draw less power per FLOP, but their
data must arrive in a half and a quarter of the time."""


def sustained_flops(table: KernelTable, gpus: GpuTable) -> Floats:
    """Return the rate in FLOP/s that the largest GEMM of each row's type sustains."""
    device = table.device
    generation = gpus.generation[device]
    reference = REFERENCE_TDP_W[generation]
    tdp = gpus.tdp_w[device]
    known = (reference > 0) & (tdp > 0)
    power = np.where(known, tdp / np.where(reference > 0, reference, 1.0), 1.0)
    clock = np.clip(power, 0.2, 1.4) ** TDP_EXPONENT
    share = np.minimum(SUSTAINED[generation] * clock, 0.95) * NARROW_SHARE[table.dtype]
    return np.asarray(gpus.peak_flops[device, table.dtype] * share)


assert len(NARROW_SHARE) == len(Dtype)
