"""Reads tables of measured kernels (schema of kernels_long) into the columns that timing takes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.catalog import load_gpu
from predictor.datasets.tables import read_table, require_columns
from predictor.lowering.tables import (
    Dtype, Floats, GpuTable, Ints, KernelKind, KernelTable, Phase,
)
from predictor.spec.cluster import Gpu
from predictor.spec.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

EVENT_TIMED = frozenset({"neusight", "liger", "primus-turbo", "simumax"})
"""Sources that time an eager call with events: a short one measures the host."""
LAUNCH_BOUND_S = 100e-6
"""An event-timed call shorter than this is refused: eager launches cost 10 to 60 us."""
COARSE_S = 10e-6
"""Times are recorded in whole microseconds by some profilers: below this they say little."""
PEAK_SLACK = 1.02
_DTYPES = {"fp32": Dtype.FP32, "tf32": Dtype.TF32, "fp16": Dtype.FP16, "bf16": Dtype.BF16,
           "bfloat16": Dtype.BF16, "fp8": Dtype.FP8, "nvfp4": Dtype.FP4}
_WIDTH_BYTES = np.array([4.0, 4.0, 2.0, 2.0, 1.0, 0.5])
_GEMMS = {"linear": KernelKind.GEMM, "linear_bias": KernelKind.GEMM, "gemm": KernelKind.GEMM,
          "bmm": KernelKind.BATCHED_GEMM, "grouped_gemm": KernelKind.GROUPED_GEMM}


@dataclass(frozen=True, slots=True)
class MemoryOp:
    """Reads plus writes per element of a memory-bound operation, each way."""

    kind: KernelKind
    forward: float
    backward: float


_UNARY = MemoryOp(KernelKind.ELEMENTWISE, 2, 3)
_BINARY = MemoryOp(KernelKind.ELEMENTWISE, 3, 3)
MEMORY_OPS = {
    "layernorm": MemoryOp(KernelKind.NORM, 2, 3), "rmsnorm": MemoryOp(KernelKind.NORM, 2, 3),
    "softmax": MemoryOp(KernelKind.SOFTMAX, 2, 3), "gelu": _UNARY, "relu": _UNARY, "tanh": _UNARY,
    "act": MemoryOp(KernelKind.ELEMENTWISE, 3, 5),
    "res_add": _BINARY, "add": _BINARY, "mul": _BINARY, "div": _BINARY,
    "addu": _UNARY, "mulu": _UNARY, "divu": _UNARY, "powu": _UNARY, "pow": _BINARY,
}
"""Operations that are one kernel in every implementation measured; ``act`` is SwiGLU's
activation and product, whose n is the width of its output."""
PORTABLE = ("flash_attn_func", "flash_attention", "flash_attention_det", "pyt_flash_attention")
"""Implementations of fused attention that are FlashAttention-2."""
CHAINS = frozenset({"RoPE", "cross_entropy", "embedding"})
"""Operations whose sources ran a chain of unfused kernels and do not list them."""


@dataclass(frozen=True, slots=True)
class KernelMeasurements:
    """Measured kernels. Arrays of the table have one entry per kernel, the others one per
    measurement: the backward pass of a linear layer is one measurement of two kernels."""

    table: KernelTable
    gpus: GpuTable
    measurement: Ints
    """Shape (kernels,): the measurement that each row of ``table`` belongs to."""
    measured_s: Floats
    ids: tuple[str, ...]
    op: tuple[str, ...]
    source: tuple[str, ...]
    gpu: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]
    """Row and reason of what is not scored."""

    def sum_s(self, kernel_s: Floats) -> Floats:
        """Return the seconds of every measurement from those of its kernels."""
        return np.asarray(np.bincount(self.measurement, weights=kernel_s,
                                      minlength=len(self.measured_s)), dtype=np.float64)

    def refusals(self) -> dict[str, int]:
        """Return how many rows were refused for each reason."""
        return dict(Counter(why for _, why in self.refused))


def read_kernels(source: str | Path | pd.DataFrame) -> KernelMeasurements:
    """Return the measurements of a table and why the rest of its rows is refused.

    Refused: rows that the table flags as bad, GPUs outside the catalogue, unlisted chains of
    kernels, blank shapes, and times that physics excludes (above the peak rate, below the time
    that memory needs) or that measure the host rather than the device.

    Raises
    ------
    InputError
        When the table cannot be read or lacks the schema's columns.
    """
    frame = read_table(source)
    require_columns(frame, ("gpu", "dtype", "op", "pass", "latency_us", "m", "n", "k"),
                    "measured kernels")
    columns = _Columns(frame)
    why = columns.reasons()
    kept = np.flatnonzero(why == "")
    table, measurement = columns.kernels(kept)
    gpus = GpuTable.from_gpus(columns.gpus)
    if not columns.gpus:
        gpus = replace(gpus, peak_flops=np.empty((0, len(Dtype))))
    physical = _physical(table, gpus, measurement, columns.seconds[kept])
    why[kept] = physical
    table = table.take(physical[measurement] == "")
    measurement = measurement[physical[measurement] == ""]
    kept = kept[physical == ""]
    renumbered = np.cumsum(physical == "") - 1
    refused = np.flatnonzero(why != "")
    return KernelMeasurements(
        table, gpus, renumbered[measurement], columns.seconds[kept],
        ids=columns.text("id", kept), op=columns.text("op", kept),
        source=columns.text("source", kept), gpu=columns.text("gpu", kept),
        refused=tuple(zip(columns.text("id", refused), why[refused].tolist(), strict=True)))


@lru_cache(maxsize=256)
def _gpu(name: str) -> Gpu | None:
    try:
        return load_gpu(name)
    except InputError:
        return None


class _Columns:
    """The cells of a table as arrays."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame
        self.rows = len(frame)
        names = sorted(set(self._words("gpu")))
        known = {name: gpu for name in names if (gpu := _gpu(name)) is not None}
        self.gpus = list(known.values())
        index = {name: row for row, name in enumerate(known)}
        self.device = np.array([index.get(name, -1) for name in self._words("gpu")], dtype=np.int64)
        self.op = self._words("op")
        self.backward = self._words("pass") == "bwd"
        self.dtype = np.array([_DTYPES.get(word, -1) for word in self._words("dtype")],
                              dtype=np.int64)
        self.seconds: Floats = self.number("latency_us", np.nan) * 1e-6

    def _words(self, name: str) -> np.ndarray[Any, Any]:
        if name not in self.frame:
            return np.full(self.rows, "", dtype=object)
        return self.frame[name].astype(object).fillna("").astype(str).to_numpy(dtype=object)

    def text(self, name: str, rows: Ints) -> tuple[str, ...]:
        """Return the cells of a column; ids are row numbers where there is no such column."""
        if name == "id" and "id" not in self.frame:
            return tuple(str(row) for row in rows.tolist())
        return tuple(self._words(name)[rows].tolist())

    def number(self, name: str, blank: float) -> Floats:
        """Return a numeric column; what is blank or no number becomes ``blank``."""
        import pandas as pd

        if name not in self.frame:
            return np.full(self.rows, blank)
        values = pd.to_numeric(self.frame[name], errors="coerce")
        return values.fillna(blank).to_numpy(dtype=np.float64)

    def reasons(self) -> np.ndarray[Any, Any]:
        """Return why each row cannot be read, empty where it can."""
        flag = self._words("flag")
        known = np.isin(self.op, [*_GEMMS, *MEMORY_OPS, "attention"])
        shaped = np.where(self.op == "attention",
                          self.number("seq", 0) * self.number("head_dim", 0),
                          self.number("m", 0) * self.number("n", 0)) > 0
        chain = np.isin(self.op, list(CHAINS)) | self._unfused()
        event = np.isin(self._words("source"), list(EVENT_TIMED))
        short = self.seconds < np.where(event, LAUNCH_BOUND_S, COARSE_S)
        cases = ((np.array([word.startswith("BAD") for word in flag]), "flagged as bad"),
                 (self.device < 0, "GPU is not in the catalogue"),
                 (chain, "unlisted chain of kernels"),
                 (~known, "unknown operation"), (self.dtype < 0, "unknown data type"),
                 (~shaped, "blank shape"), (~(self.seconds > 0), "no time"),
                 (short, "too short to tell the kernel from its launch"))
        return np.select([case for case, _ in cases], [why for _, why in cases], "").astype(object)

    def _unfused(self) -> np.ndarray[Any, Any]:
        """RMSNorm written as separate operations."""
        return np.asarray((self.op == "rmsnorm") & (self._words("source") == "estimate-train-time"))

    def kernels(self, rows: Ints) -> tuple[KernelTable, Ints]:
        """Return the kernels of ``rows`` and, for each, its position in ``rows``."""
        gemm = np.isin(self.op[rows], list(_GEMMS))
        attention = self.op[rows] == "attention"
        forward = ~self.backward[rows]
        parts = [
            self._gemm(rows, np.flatnonzero(gemm & forward), Phase.FORWARD),
            self._gemm(rows, np.flatnonzero(gemm & ~forward), Phase.BACKWARD),
            self._gemm(rows, np.flatnonzero(gemm & ~forward), Phase.WEIGHT),
            self._attention(rows, np.flatnonzero(attention)),
            self._memory(rows, np.flatnonzero(~gemm & ~attention))]
        names = parts[0]
        stacked = {name: np.concatenate([part[name] for part in parts]) for name in names}
        measurement = stacked.pop("measurement").astype(np.int64)
        whole = ("kind", "phase", "dtype", "device", "portable")
        columns: dict[str, Any] = {
            name: column.astype(np.int64) if name in whole else column
            for name, column in stacked.items()}
        return KernelTable(**columns), measurement

    def _shared(self, rows: Ints, at: Ints, **columns: Floats | Ints | float) -> dict[str, Any]:
        shape = (len(at),)
        filled = {"measurement": at, "dtype": self.dtype[rows[at]], "device": self.device[rows[at]],
                  "causal": 1.0, "flops": 0.0, "launches": 1.0, "portable": 0.0} | columns
        return {name: np.broadcast_to(np.asarray(value, dtype=np.float64), shape)
                for name, value in sorted(filled.items())}

    def _gemm(self, rows: Ints, at: Ints, phase: Phase) -> dict[str, Any]:
        where = rows[at]
        batch = np.maximum(self.number("batch", 1.0)[where], 1.0)
        m, n, k = (self.number(name, 1.0)[where] for name in ("m", "n", "k"))
        shapes = {Phase.FORWARD: (m, n, k), Phase.BACKWARD: (m, k, n), Phase.WEIGHT: (n, k, m)}
        rows_, columns, depth = shapes[phase]
        size = _WIDTH_BYTES[self.dtype[where]]
        out = np.maximum(size, 2.0)
        kind = np.array([_GEMMS[word] for word in self.op[where]], dtype=np.float64)
        return self._shared(
            rows, at, kind=kind, phase=float(phase), batch=batch, m=rows_, n=columns, k=depth,
            flops=2 * batch * rows_ * columns * depth,
            bytes=batch * (size * depth * (rows_ + columns) + out * rows_ * columns))

    def _attention(self, rows: Ints, at: Ints) -> dict[str, Any]:
        where = rows[at]
        heads, seq = self.number("heads", 1.0)[where], self.number("seq", 1.0)[where]
        samples, width = self.number("batch", 1.0)[where], self.number("head_dim", 1.0)[where]
        groups = self.number("kv_heads", 0.0)[where]
        groups = np.where(groups > 0, groups, heads)
        causal = np.isin(self._words("causal")[where], ["1", "1.0", "True", "true", "causal"])
        share = np.where(causal, 0.5 * (1 + 1 / seq), 1.0)
        backward = self.backward[where]
        traffic = 2 * width * samples * seq * _WIDTH_BYTES[self.dtype[where]] * (heads + groups)
        return self._shared(
            rows, at, kind=float(KernelKind.ATTENTION), batch=samples * heads, m=seq, n=seq,
            phase=np.where(backward, Phase.BACKWARD, Phase.FORWARD), k=width, causal=share,
            flops=np.where(backward, 10.0, 4.0) * samples * heads * seq * seq * share * width,
            bytes=np.where(backward, 2.5, 1.0) * traffic, launches=np.where(backward, 2.0, 1.0),
            portable=np.isin(self._words("impl")[where], PORTABLE).astype(np.float64))

    def _memory(self, rows: Ints, at: Ints) -> dict[str, Any]:
        where = rows[at]
        backward = self.backward[where]
        operations = [MEMORY_OPS[word] for word in self.op[where]]
        accesses = np.where(backward, [one.backward for one in operations],
                            [one.forward for one in operations])
        m, n = self.number("m", 1.0)[where], self.number("n", 1.0)[where]
        return self._shared(
            rows, at, kind=np.array([one.kind for one in operations], dtype=np.float64), batch=1.0,
            phase=np.where(backward, Phase.BACKWARD, Phase.FORWARD), m=m, n=n, k=0.0,
            bytes=m * n * accesses * _WIDTH_BYTES[self.dtype[where]])


def _physical(table: KernelTable, gpus: GpuTable, measurement: Ints, seconds: Floats
              ) -> np.ndarray[Any, Any]:
    """Return why physics excludes each measurement, empty where it does not."""
    count = len(seconds)
    least_compute = np.bincount(measurement, minlength=count, weights=table.flops
                                / gpus.peak_flops[table.device, table.dtype])
    # Tensors that fit in the last-level cache need not touch device memory.
    outside = np.maximum(table.bytes - gpus.l2_bytes[table.device] * table.launches, 0.0)
    least_memory = np.bincount(measurement, minlength=count, weights=outside
                               / gpus.memory_bandwidth_bytes_per_s[table.device])
    return np.select(
        [least_compute > seconds * PEAK_SLACK, least_memory > seconds * PEAK_SLACK],
        ["faster than the peak rate", "faster than memory allows"], "").astype(object)
