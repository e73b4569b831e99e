"""Seconds of matrix products: tiles over multiprocessors at the clock that the power budget allows."""

from __future__ import annotations

import numpy as np

from predictor.lowering.tables import GENERATIONS, Floats, GpuTable, KernelKind, KernelTable
from predictor.timing.device import LAUNCH_S, sustained_flops

TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.93), (128, 64, 0.75), (64, 128, 0.75),
         (64, 64, 0.55))
"""Output tile (rows, columns) and the share of a multiprocessor's rate it reaches: smaller tiles
load more per FLOP."""
FILL_DEPTH = 160.0
"""Contraction depth that filling and draining a tile's pipeline costs."""
SPLITS = (1, 2, 4, 8)
"""Ways that cuBLAS splits the contraction when there are fewer tiles than multiprocessors."""
SPLIT_COST = 0.06
"""Added work of one more split: partial results are written and summed."""
_GROUPED = {"ampere": 0.9, "hopper": 0.75, "blackwell": 0.68}
GROUPED_SHARE = np.array([_GROUPED.get(name, 0.8) for name in GENERATIONS])
"""Rate of many small GEMMs over one large one: problems start and end at different times and no
tile serves all (MoE layers measured on A100 and B200 in SimuMax's efficiency tables)."""
MEMORY_SHARE = 0.8
"""Share of the memory bandwidth that a GEMM's loads reach."""


def gemm_times(table: KernelTable, gpus: GpuTable) -> Floats:
    """Return the device seconds of each (batched, grouped) GEMM, shape (rows,)."""
    device = table.device
    rate = sustained_flops(table, gpus)
    sms = gpus.sm_count[device]
    per_sm = rate / sms
    best = np.full(len(table), np.inf)
    for rows, columns, share in TILES:
        tiles = table.batch * np.ceil(table.m / rows) * np.ceil(table.n / columns)
        for split in SPLITS:
            depth = table.k / split + FILL_DEPTH
            slots = tiles * split / sms
            # Persistent and stream-K kernels even out part of the last wave.
            waves = np.maximum(1.0, 0.5 * (np.ceil(slots) + slots))
            work = 2.0 * rows * columns * depth * (1 + SPLIT_COST * (split - 1))
            best = np.minimum(best, waves * work / (per_sm * share))
    grouped = (table.kind == KernelKind.GROUPED_GEMM) & (table.batch > 1)
    best = best / np.where(grouped, GROUPED_SHARE[gpus.generation[device]], 1.0)
    traffic = table.bytes / (gpus.memory_bandwidth_bytes_per_s[device] * MEMORY_SHARE)
    return np.asarray(np.maximum(best, traffic) + LAUNCH_S * table.launches)

