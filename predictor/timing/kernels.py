"""Seconds of every kernel: each family has a model of its own."""

from __future__ import annotations

import numpy as np

from predictor.lowering.tables import Floats, GpuTable, KernelKind, KernelTable
from predictor.timing.attention import attention_times
from predictor.timing.gemm import gemm_times
from predictor.timing.memory_bound import memory_bound_times

_GEMMS = (KernelKind.GEMM, KernelKind.GROUPED_GEMM, KernelKind.BATCHED_GEMM)


def kernel_times(table: KernelTable, gpus: GpuTable) -> Floats:
    """Return the device seconds of every row of ``table``, shape (rows,).

    A row stands for ``launches`` kernels; host time is not included.
    """
    seconds = np.empty(len(table))
    gemms = np.isin(table.kind, _GEMMS)
    attention = table.kind == KernelKind.ATTENTION
    rest = ~(gemms | attention)
    for rows, model in ((gemms, gemm_times), (attention, attention_times),
                        (rest, memory_bound_times)):
        seconds[rows] = model(table.take(rows), gpus)
    return seconds
