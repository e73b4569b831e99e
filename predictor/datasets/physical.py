"""Which measured times physics excludes, judged by the hardware and by other measurements.

The checks know no source, file or flag: they compare a time with what the GPU can do at best and
with the time of the same work in another pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from predictor.lowering.tables import Floats, GpuTable, Ints, KernelKind, KernelTable

if TYPE_CHECKING:
    from predictor.datasets.kernels import KernelMeasurements

PEAK_SLACK = 1.02
"""Clocks and data sheets are good to about two percent."""
LEAST_BACKWARD = 0.9
"""Least time of a backward pass in forward times. It computes at least twice as much, but short
calls take what their launches take, and batched products whose output dwarfs their inputs write
more forward than backward."""
LOST_SHARE = 0.9
"""A series of which this share is impossible is no measurement of what it says it is."""
LOST_ROWS = 20
"""Impossible rows that a series is judged by at least."""
FAR_FACTOR = 8.0
"""A series whose large problems take this many times what the hardware needs times something else
too, such as preparing weights on every call."""
FAR_ROWS = 50
"""Rows that a series has at least to be judged that way."""
FAR_FROM_HARDWARE = "its series never comes near the hardware"
ABOVE_PEAK = "faster than the peak rate"
ABOVE_BANDWIDTH = "faster than memory allows"
BELOW_FORWARD = "backward too fast for its forward"
LOST_SERIES = "most of its series is impossible"
_TWO_GRADIENTS = (KernelKind.GEMM, KernelKind.GROUPED_GEMM, KernelKind.BATCHED_GEMM,
                  KernelKind.ATTENTION)
Words = np.ndarray[Any, Any]
Flags = NDArray[np.bool_]


def reasons(found: KernelMeasurements) -> Words:
    """Return why physics excludes each measurement, empty where it does not.

    Returns
    -------
    ndarray
        Shape (measurements,), dtype object: one of :data:`ABOVE_PEAK`, :data:`ABOVE_BANDWIDTH`,
        :data:`BELOW_FORWARD`, :data:`LOST_SERIES` or the empty text.
    """
    why = beyond_hardware(found.table, found.gpus, found.measurement, found.measured_s)
    why = np.where((why == "") & _below_forward(found), BELOW_FORWARD, why).astype(object)
    series = _series(found)
    lost = (why == "") & _in_lost_series(series, why != "")
    return np.where(lost, LOST_SERIES, why).astype(object)


def beyond_hardware(table: KernelTable, gpus: GpuTable, measurement: Ints, seconds: Floats
                    ) -> Words:
    """Return why the hardware cannot be as fast as measured, empty where it can.

    Parameters
    ----------
    table, gpus
        Kernels and the GPUs they ran on.
    measurement
        Shape (kernels,): position in ``seconds`` of the measurement a kernel belongs to.
    seconds
        Shape (measurements,): measured times.
    """
    count = len(seconds)
    least_compute = np.bincount(measurement, minlength=count, weights=table.flops
                                / gpus.peak_flops[table.device, table.dtype])
    # Tensors that fit in the last-level cache need not touch device memory.
    outside = np.maximum(table.bytes - gpus.l2_bytes[table.device] * table.launches, 0.0)
    least_memory = np.bincount(measurement, minlength=count, weights=outside
                               / gpus.memory_bandwidth_bytes_per_s[table.device])
    return np.select(
        [least_compute > seconds * PEAK_SLACK, least_memory > seconds * PEAK_SLACK],
        [ABOVE_PEAK, ABOVE_BANDWIDTH], "").astype(object)


def _below_forward(found: KernelMeasurements) -> Flags:
    """Return where a backward pass is too fast for the fastest forward pass of the same work."""
    passes = np.array(found.passes, dtype=object)
    kind = _first(found, found.table.kind)
    backward = np.flatnonzero((passes == "bwd") & np.isin(kind, _TWO_GRADIENTS))
    forward = np.flatnonzero(passes == "fwd")
    keys = _work(found, backward)
    fastest = dict.fromkeys(keys, np.inf)
    for row, key in zip(forward.tolist(), _work(found, forward), strict=True):
        if key in fastest:
            fastest[key] = min(fastest[key], float(found.measured_s[row]))
    against = np.array([fastest[key] for key in keys], dtype=np.float64)
    below = np.zeros(len(found), dtype=bool)
    below[backward] = np.isfinite(against) & (found.measured_s[backward] < LEAST_BACKWARD * against)
    return below


def _series(found: KernelMeasurements) -> Ints:
    """Number what one program measured of one operation, shape (measurements,)."""
    words = (found.source, found.gpu, found.software, found.impl, found.op, found.passes,
             found.timing_kind, _first(found, found.table.dtype).tolist())
    codes: dict[tuple[Any, ...], int] = {}
    return np.array([codes.setdefault(key, len(codes)) for key in zip(*words, strict=True)],
                    dtype=np.int64)


def _in_lost_series(series: Ints, impossible: Flags) -> Flags:
    """Return which measurements belong to a series that is nearly all impossible."""
    rows = np.bincount(series)
    bad = np.bincount(series, weights=impossible)
    lost = (bad >= LOST_ROWS) & (bad >= LOST_SHARE * rows)
    return np.asarray(lost[series], dtype=bool)


def far_from_hardware(found: KernelMeasurements) -> Words:
    """Return :data:`FAR_FROM_HARDWARE` for products of a series whose larger half is far from it.

    Such rows are possible, but no model of a product should learn from them: shape
    (measurements,), dtype object, empty text for the others.
    """
    series = _series(found)
    far = np.zeros(len(found), dtype=bool)
    products = np.flatnonzero(np.isin(_first(found, found.table.kind), _TWO_GRADIENTS))
    least = found.sum_s(least_s(found.table, found.gpus))
    order = products[np.argsort(series[products], kind="stable")]
    _, starts = np.unique(series[order], return_index=True)
    for rows in np.split(order, starts[1:]) if len(order) else []:
        large = rows[least[rows] >= np.median(least[rows])]
        if len(rows) >= FAR_ROWS:
            far[rows] = np.median(found.measured_s[large] / least[large]) > FAR_FACTOR
    return np.where(far, FAR_FROM_HARDWARE, "").astype(object)


def least_s(table: KernelTable, gpus: GpuTable) -> Floats:
    """Return the seconds that each kernel needs at the peak rates, shape (kernels,)."""
    return np.asarray(np.maximum(
        table.flops / gpus.peak_flops[table.device, table.dtype],
        table.bytes / gpus.memory_bandwidth_bytes_per_s[table.device]))


def _first(found: KernelMeasurements, column: Ints) -> Ints:
    """Return a column of the kernels as one of the measurements, whose kernels share it."""
    values = np.zeros(len(found), dtype=np.int64)
    values[found.measurement] = column
    return values


def _work(found: KernelMeasurements, rows: Ints) -> list[tuple[Any, ...]]:
    """Return what each row ran and with what: rows of equal keys differ in their pass alone."""
    dtype = _first(found, found.table.dtype)
    return [(found.source[row], found.gpu[row], found.software[row], found.impl[row],
             found.op[row], found.timing_kind[row], int(dtype[row]), found.shapes[row].tobytes())
            for row in rows.tolist()]
