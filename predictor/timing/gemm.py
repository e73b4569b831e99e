"""Seconds of matrix products: tiles over multiprocessors at the clock that power allows."""

from __future__ import annotations

import numpy as np

from predictor.lowering.tables import (
    GENERATIONS, Dtype, Floats, GpuTable, KernelKind, KernelTable,
)
from predictor.timing.device import LAUNCH_S, Regime, sustained_flops

TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.98), (128, 64, 0.93), (64, 128, 0.93),
         (64, 64, 0.7))
"""Output tile (rows, columns) and the share of a multiprocessor's rate it reaches: smaller tiles
load more per FLOP. This and the constants below: fitted on 16-bit GEMMs of A100, GH200, H100,
H200 and B200 (experiments/kernels)."""
FILL_DEPTH = 145.0
"""Contraction depth that filling and draining a tile's pipeline costs."""
SCALAR_FILL_DEPTH = 40.0
"""The same for fp32 units, which a sixteenth of the data per cycle keeps busy."""
SPLITS = (1, 2, 4, 8)
"""Ways that cuBLAS splits the contraction when there are fewer tiles than multiprocessors."""
SPLIT_COST = 0.045
"""Added work of one more split: partial results are written and summed."""
QUANTISED_WAVES = 0.43
"""Share of the last wave's idle time that stays: persistent and stream-K kernels even out the
rest."""
OVERLAP_NORM = 4.0
"""Norm that joins arithmetic and traffic: the larger rules, and near balance they collide."""
_GROUPED = {"ampere": 0.9, "hopper": 0.75, "blackwell": 0.68}
GROUPED_SHARE = np.array([_GROUPED.get(name, 0.8) for name in GENERATIONS])
"""Rate of many small GEMMs over one large one: problems start and end at different times and no
tile serves all (MoE layers measured on A100 and B200 in SimuMax's efficiency tables)."""
MEMORY_SHARE = 0.8
"""Share of the memory bandwidth that a GEMM's loads reach."""


def gemm_times(table: KernelTable, gpus: GpuTable, regime: Regime = Regime.TRAINING) -> Floats:
    """Return the device seconds of each (batched, grouped) GEMM, shape (rows,)."""
    device = table.device
    grouped = (table.kind == KernelKind.GROUPED_GEMM) & (table.batch > 1)
    rate = sustained_flops(table, gpus, regime) * np.where(
        grouped, GROUPED_SHARE[gpus.generation[device]], 1.0)
    arithmetic = _tiled_s(table, rate, gpus.sm_count[device])
    traffic = table.bytes / (gpus.memory_bandwidth_bytes_per_s[device] * MEMORY_SHARE)
    longer, shorter = np.maximum(arithmetic, traffic), np.minimum(arithmetic, traffic)
    ratio = shorter / np.maximum(longer, 1e-30)
    joined = longer * (1.0 + ratio ** OVERLAP_NORM) ** (1.0 / OVERLAP_NORM)
    return np.asarray(joined + LAUNCH_S * table.launches)


def _tiled_s(table: KernelTable, rate: Floats, sms: Floats) -> Floats:
    """Seconds of the best choice among tiles and splits."""
    scalar = table.dtype == Dtype.FP32
    fill = np.where(scalar, SCALAR_FILL_DEPTH, FILL_DEPTH)
    best = np.full(len(table), np.inf)
    for rows, columns, tensor_share in TILES:
        tiles = table.batch * np.ceil(table.m / rows) * np.ceil(table.n / columns)
        share = np.where(scalar, 1.0, tensor_share)
        for split in SPLITS:
            slots = tiles * split / sms
            waves = np.maximum(
                1.0, QUANTISED_WAVES * np.ceil(slots) + (1 - QUANTISED_WAVES) * slots)
            work = 2.0 * rows * columns * (table.k / split + fill) * (1 + SPLIT_COST * (split - 1))
            best = np.minimum(best, waves * work * sms / (rate * share))
    return best
