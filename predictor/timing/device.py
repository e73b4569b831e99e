"""What a GPU sustains against its data sheet: the power budget decides the clock."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from predictor.lowering.tables import GENERATIONS, Dtype, Floats, GpuTable, KernelTable


class Regime(IntEnum):
    """How hot the device is."""

    TRAINING = 0
    """Hours of back-to-back kernels, memory and links busy too, the host's other GPUs beside."""
    ISOLATED = 1
    """One kernel repeated for a second or less, as micro-benchmarks do."""


LAUNCH_S = 3.5e-6
"""Device time between the end of one kernel and the start of the next on one stream, with the
ramp of the grid (fitted on GEMMs of A100, H100, H200 and B200 replayed as CUDA graphs)."""
_TRAINING = {"volta": 0.82, "turing": 0.7, "ampere": 0.82, "ada": 0.6, "hopper": 0.70,
             "blackwell": 0.48, "cdna2": 0.55, "cdna3": 0.46, "cdna4": 0.46}
_ISOLATED = {"volta": 0.85, "turing": 0.75, "ampere": 0.85, "ada": 0.65, "hopper": 0.85,
             "blackwell": 0.745, "cdna2": 0.6, "cdna3": 0.46, "cdna4": 0.46}
SUSTAINED = np.array([[table.get(name, 0.7) for name in GENERATIONS]
                      for table in (_TRAINING, _ISOLATED)])
"""Share of the 16-bit tensor peak that the largest GEMMs reach, by :class:`Regime` and generation,
at the reference power below. ISOLATED: medians of measured GEMMs (A100 and GH200 in arXiv
2509.22832; A100 to B200 in aiconfigurator; MI300X in Primus-Turbo). TRAINING: what whole measured
steps ask for, the one place to calibrate."""
_WATT_PER_TERAFLOP = {"volta": 300 / 125.3, "turing": 70 / 65.1, "ampere": 400 / 312,
                      "ada": 350 / 362, "hopper": 700 / 989.4, "blackwell": 1000 / 2250,
                      "cdna2": 250 / 191.5, "cdna3": 750 / 1307.4, "cdna4": 1400 / 2500}
REFERENCE_J_PER_FLOP = np.array([_WATT_PER_TERAFLOP.get(name, 0.0) * 1e-12
                                 for name in GENERATIONS])
"""Power limit over 16-bit peak of the GPU that SUSTAINED was measured on. A variant with less power
per FLOP (PCIe cards, the 500 W H100) clocks lower, one with more (GB300) higher."""
CLOCK_EXPONENT = 0.45
"""Dynamic power grows with clock x voltage squared and voltage with clock, so the clock goes with
power^(1/3) to power^(1/2). Measured: A100 PCIe against SXM 0.43, GB300 against B200 0.4."""
MAX_SHARE = 0.88
"""Share of the peak that issue, barriers and addressing leave when power is no limit."""
NARROW_SHARE = np.array([[1.0, 1.0, 1.0, 1.0, 1.0, 0.85], [1.0, 1.0, 1.0, 1.0, 0.8, 0.74]])
"""By Regime and Dtype, of the type's own peak: 8-bit and 4-bit products draw less power per FLOP,
but their data must arrive in a half and a quarter of the time."""
_HOT_NARROW = {"hopper": 0.93, "blackwell": 1.12}
HOT_NARROW = np.array([_HOT_NARROW.get(name, 1.0) for name in GENERATIONS])
"""The same by generation, in training: the more power holds 16-bit products back, the more narrow
ones gain. Read off whole steps of dense models in 8 bits beside 16 bits."""


def sustained_flops(table: KernelTable, gpus: GpuTable, regime: Regime = Regime.TRAINING) -> Floats:
    """Return the rate in FLOP/s that the largest GEMM of each row's type sustains."""
    device = table.device
    generation = gpus.generation[device]
    reference = REFERENCE_J_PER_FLOP[generation]
    own = gpus.tdp_w[device] / gpus.peak_flops[device, Dtype.FP16]
    known = (reference > 0) & (own > 0)
    power = np.where(known, own / np.where(reference > 0, reference, 1.0), 1.0)
    share = SUSTAINED[regime][generation] * np.clip(power, 0.2, 5.0) ** CLOCK_EXPONENT
    share = np.minimum(share, MAX_SHARE) * NARROW_SHARE[regime][table.dtype]
    hot = (table.dtype >= Dtype.FP8) & (regime == Regime.TRAINING)
    share = share * np.where(hot, HOT_NARROW[generation], 1.0)
    return np.asarray(gpus.peak_flops[device, table.dtype] * share)


assert NARROW_SHARE.shape == (len(Regime), len(Dtype))
