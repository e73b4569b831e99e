"""What a kernel and its device look like to the learned models: columns of float32.

The columns describe work and hardware, never a product's name, so that they speak for a GPU that
nobody measured. All times that go into them are analytic times of an isolated kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Self

import numpy as np
from numpy.typing import NDArray

from predictor.lowering.tables import (
    Columns, Dtype, Floats, GpuTable, Ints, KernelKind, KernelTable, Phase,
)
from predictor.timing.device import LAUNCH_S, Regime
from predictor.timing.gemm import TILES
from predictor.timing.kernels import kernel_times

Matrix = NDArray[np.float32]


class TimingKind(IntEnum):
    """What a measured time holds."""

    KERNEL = 0
    """Device time of the kernels, summed by a profiler."""
    GRAPH = 1
    """Replay of a CUDA graph: kernels and the gaps between them, no host."""
    EVENT = 2
    """An eager call between two events: short ones measure the host."""
    HOST = 3
    """Wall clock around a call that ends with a synchronisation."""


SOFTWARE = ("torch", "cudnn", "flash-attn", "te", "sglang", "trtllm", "vllm", "primus-turbo",
            "liger", "simumax")
"""Libraries that ran measured kernels. Kernels of a training step have none: the models learn what
is usual among the libraries (see :mod:`predictor.training.fit`)."""


@dataclass(frozen=True, slots=True)
class Conditions(Columns):
    """How each kernel is run and timed. All arrays have shape (rows,)."""

    timing: Floats
    """:class:`TimingKind` of the time."""
    software: Floats
    """Index into :data:`SOFTWARE`, NaN when unknown."""
    deterministic: Floats
    """1 where sums run in one order, which costs a backward attention its atomic additions."""
    block_scaled: Floats
    """1 where narrow types carry a scale per block (mxfp8, nvfp4, DeepSeek's fp8)."""

    @classmethod
    def usual(cls, table: KernelTable) -> Self:
        """Return the conditions of a step.

        Products follow one another with the gaps of a graph, in whatever library the framework
        calls; attention and memory-bound kernels are the vendor's, or FlashAttention where they
        are portable.
        """
        product = MODEL_OF_KIND[table.kind] == MODELS.index("gemm")
        software = np.where(table.portable > 0, float(SOFTWARE.index("flash-attn")),
                            float(SOFTWARE.index("cudnn")))
        return cls(np.where(product, float(TimingKind.GRAPH), float(TimingKind.KERNEL)),
                   np.where(product, np.nan, software), np.zeros(len(table)),
                   (table.dtype == Dtype.FP4).astype(float))


MODELS = ("gemm", "attention", "memory_bound")
"""Learned models of kernels; families with few measurements lean on those they share one with."""
_MODEL_OF_KIND = {KernelKind.GEMM: 0, KernelKind.GROUPED_GEMM: 0, KernelKind.BATCHED_GEMM: 0,
                  KernelKind.ATTENTION: 1}
MODEL_OF_KIND = np.array([_MODEL_OF_KIND.get(kind, 2) for kind in KernelKind])

DEVICE_FEATURES = ("peak", "bandwidth", "sm_count", "l2", "clock", "power", "generation",
                   "balance")
_GEMM = (
    "m", "n", "k", "batch", "flops", "bytes", "arithmetic_s", "traffic_s", "arithmetic_to_traffic",
    "l2_share", "weights_l2_share", "warm_to_analytic", "n_to_k", "m_to_n", "m_padding",
    "n_padding", "unaligned_m", "unaligned_k", "depth_work",
    *(f"wave_{rows}x{columns}" for rows, columns, _ in TILES),
    *(f"slots_{rows}x{columns}" for rows, columns, _ in TILES))
_ATTENTION = (
    "query", "keys", "width", "batch", "causal", "flops", "bytes", "arithmetic_s", "traffic_s",
    "flops_per_score", "keys_seen", "query_tiles", "wave", "heads_per_sm", "portable",
    "kv_traffic", "query_to_keys")
_MEMORY = (
    "bytes", "flops", "traffic_s", "l2_share", "warm_to_analytic", "width", "rows",
    "bytes_per_element", "launches", "bytes_per_launch", "rows_per_sm")
_SHARED = ("kind", "phase", "dtype", "timing", "software", "deterministic", "block_scaled",
           "analytic_s", *DEVICE_FEATURES)
FEATURES = {"gemm": _GEMM + _SHARED, "attention": _ATTENTION + _SHARED,
            "memory_bound": _MEMORY + _SHARED}
"""Names of the columns by model. Sizes, times and rates are base-2 logarithms."""
L2_BYTES_PER_CLOCK = 32.0
"""What one multiprocessor reads from the last-level cache per cycle, in bytes."""
TINY = 1e-12


def kernel_features(
    model: str, table: KernelTable, gpus: GpuTable, conditions: Conditions,
    analytic_s: Floats | None = None,
) -> Matrix:
    """Return the features of every row, shape (rows, len(FEATURES[model])).

    ``analytic_s`` are the rows' analytic times in isolation; they are computed when not given.
    """
    if analytic_s is None:
        analytic_s = kernel_times(table, gpus, Regime.ISOLATED)
    own = {"gemm": _gemm, "attention": _attention, "memory_bound": _memory}[model]
    found = own(table, gpus, analytic_s) | _shared(table, gpus, conditions, analytic_s)
    matrix = np.empty((len(table), len(FEATURES[model])), dtype=np.float32)
    for column, name in enumerate(FEATURES[model]):
        matrix[:, column] = found[name]
    return matrix


def _log(values: Floats) -> Floats:
    return np.asarray(np.log2(np.maximum(values, TINY)))


def _shared(
    table: KernelTable, gpus: GpuTable, conditions: Conditions, analytic_s: Floats
) -> dict[str, Floats | Ints]:
    device = table.device
    features = device_features(gpus)
    phase = np.where(table.phase == Phase.RECOMPUTE, int(Phase.FORWARD), table.phase)
    return {
        "kind": table.kind, "phase": phase, "dtype": table.dtype, "timing": conditions.timing,
        "software": conditions.software, "deterministic": conditions.deterministic,
        "block_scaled": conditions.block_scaled, "analytic_s": _log(analytic_s),
        "peak": _log(gpus.peak_flops[device, table.dtype]),
        **{name: column[device] for name, column in zip(
            DEVICE_FEATURES[1:], features.T, strict=True)}}


def device_features(gpus: GpuTable) -> Floats:
    """Return what describes each GPU whatever it runs, shape (gpus, len(DEVICE_FEATURES) - 1)."""
    fp16 = gpus.peak_flops[:, 2]
    return np.column_stack([
        _log(gpus.memory_bandwidth_bytes_per_s), gpus.sm_count, _log(gpus.l2_bytes),
        gpus.boost_clock_hz / 1e9, _log(gpus.tdp_w / np.maximum(fp16, 1.0) * 1e12),
        gpus.generation, _log(fp16 / np.maximum(gpus.memory_bandwidth_bytes_per_s, 1.0))])


def _warm_s(table: KernelTable, gpus: GpuTable) -> Floats:
    """Seconds when what fits in the last-level cache is there already, as in repeated runs."""
    device = table.device
    per_launch = table.bytes / np.maximum(table.launches, 1.0)
    cached = gpus.sm_count[device] * gpus.boost_clock_hz[device] * L2_BYTES_PER_CLOCK
    beyond = np.maximum(per_launch - 0.8 * gpus.l2_bytes[device], 0.0)
    moved = np.maximum(per_launch / np.maximum(cached, 1.0),
                       beyond / gpus.memory_bandwidth_bytes_per_s[device])
    return np.asarray((moved + LAUNCH_S) * np.maximum(table.launches, 1.0))


def _gemm(table: KernelTable, gpus: GpuTable, analytic_s: Floats) -> dict[str, Floats]:
    device = table.device
    m, n, k, batch = table.m, table.n, table.k, table.batch
    sms, l2 = gpus.sm_count[device], gpus.l2_bytes[device]
    arithmetic = table.flops / gpus.peak_flops[device, table.dtype]
    traffic = table.bytes / gpus.memory_bandwidth_bytes_per_s[device]
    log = {"m": _log(m), "n": _log(n), "k": _log(k), "batch": _log(batch)}
    padded_m, padded_n = np.ceil(m / 128) * 128, np.ceil(n / 128) * 128
    tiles = batch * padded_m * padded_n / 128 ** 2
    found = log | {
        "flops": _log(table.flops), "bytes": _log(table.bytes),
        "arithmetic_s": _log(arithmetic), "traffic_s": _log(traffic),
        "l2_share": _log(table.bytes / l2),
        "weights_l2_share": _log(batch * n * k * table.bytes / np.maximum(
            batch * (m * k + n * k + m * n), 1.0) / l2),
        "warm_to_analytic": _log(_warm_s(table, gpus) / analytic_s),
        "n_to_k": log["n"] - log["k"], "m_to_n": log["m"] - log["n"],
        "m_padding": m / padded_m, "n_padding": n / padded_n,
        "unaligned_m": np.mod(m, 8) > 0, "unaligned_k": np.mod(k, 64) > 0,
        "depth_work": _log(k * np.maximum(1.0, tiles / sms))}
    found["arithmetic_to_traffic"] = found["arithmetic_s"] - found["traffic_s"]
    for rows, columns, _ in TILES:
        slots = batch * np.ceil(m / rows) * np.ceil(n / columns) / sms
        found[f"wave_{rows}x{columns}"] = slots / np.maximum(np.ceil(slots), 1.0)
        found[f"slots_{rows}x{columns}"] = _log(slots)
    return found


def _attention(table: KernelTable, gpus: GpuTable, analytic_s: Floats) -> dict[str, Floats]:
    del analytic_s
    device = table.device
    sms = gpus.sm_count[device]
    scores = table.batch * table.m * table.n * table.causal
    tiles = table.batch * np.ceil(table.m / 128)
    slots = tiles / sms
    out = table.batch * table.m * table.k
    return {
        "query": _log(table.m), "keys": _log(table.n), "width": table.k,
        "batch": _log(table.batch), "causal": table.causal, "flops": _log(table.flops),
        "bytes": _log(table.bytes),
        "arithmetic_s": _log(table.flops / gpus.peak_flops[device, table.dtype]),
        "traffic_s": _log(table.bytes / gpus.memory_bandwidth_bytes_per_s[device]),
        "flops_per_score": table.flops / np.maximum(scores, 1.0),
        "keys_seen": _log(table.n * table.causal), "query_tiles": _log(tiles),
        "wave": slots / np.maximum(np.ceil(slots), 1.0), "heads_per_sm": _log(table.batch / sms),
        "portable": table.portable.astype(float),
        "kv_traffic": _log(table.bytes / np.maximum(out, 1.0)),
        "query_to_keys": _log(table.m / np.maximum(table.n, 1.0))}


def _memory(table: KernelTable, gpus: GpuTable, analytic_s: Floats) -> dict[str, Floats]:
    device = table.device
    launches = np.maximum(table.launches, 1.0)
    # Lowering counts the elements of elementwise kernels, sources give their rows and widths.
    shaped = table.n > 1
    elements = table.m * table.n
    return {
        "bytes": _log(table.bytes), "flops": _log(table.flops),
        "traffic_s": _log(table.bytes / gpus.memory_bandwidth_bytes_per_s[device]),
        "l2_share": _log(table.bytes / launches / gpus.l2_bytes[device]),
        "warm_to_analytic": _log(_warm_s(table, gpus) / analytic_s),
        "width": np.where(shaped, _log(table.n), np.nan),
        "rows": np.where(shaped, _log(table.m), np.nan),
        "bytes_per_element": table.bytes / np.maximum(elements, 1.0),
        "launches": launches, "bytes_per_launch": _log(table.bytes / launches),
        "rows_per_sm": np.where(shaped, _log(table.m / gpus.sm_count[device]), np.nan)}


def unit_of(feature: str) -> str:
    """Return the unit of a feature: a logarithm to base 2 of something, or a plain number."""
    if feature in _PLAIN:
        return "1"
    if feature in ("clock",):
        return "GHz"
    what = {"flops": "FLOP", "bytes": "B", "bandwidth": "B/s", "peak": "FLOP/s", "l2": "B",
            "power": "W/TFLOP/s", "balance": "FLOP/B", "bytes_per_launch": "B"}
    return f"log2 {'s' if feature.endswith('_s') else what.get(feature, '1')}"


_PLAIN = frozenset({
    "kind", "phase", "dtype", "timing", "software", "deterministic", "block_scaled", "generation",
    "sm_count", "m_padding", "n_padding", "unaligned_m", "unaligned_k", "causal",
    "flops_per_score", "wave", "portable", "bytes_per_element", "launches", "width",
    *(f"wave_{rows}x{columns}" for rows, columns, _ in TILES)})
