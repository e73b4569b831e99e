"""Seconds of every kernel: each family has a model of its own."""

from __future__ import annotations

import numpy as np

from predictor.lowering.tables import Floats, GpuTable, KernelKind, KernelTable
from predictor.timing.attention import attention_times
from predictor.timing.device import Regime
from predictor.timing.gemm import gemm_times
from predictor.timing.memory_bound import memory_bound_times

_GEMMS = (KernelKind.GEMM, KernelKind.GROUPED_GEMM, KernelKind.BATCHED_GEMM)


def kernel_times(
    table: KernelTable, gpus: GpuTable, regime: Regime = Regime.TRAINING
) -> Floats:
    """Return the device seconds of every row of ``table``, shape (rows,).

    A row stands for ``launches`` kernels; host time is not included. ``regime`` says whether the
    device runs a training step or a kernel alone, as a benchmark does.
    """
    seconds = np.empty(len(table))
    gemms = np.isin(table.kind, _GEMMS)
    attention = table.kind == KernelKind.ATTENTION
    rest = ~(gemms | attention)
    seconds[gemms] = gemm_times(table.take(gemms), gpus, regime)
    seconds[attention] = attention_times(table.take(attention), gpus, regime)
    seconds[rest] = memory_bound_times(table.take(rest), gpus)
    return seconds
