"""Turns rows of the tidy kernel table into kernels: the columns that timing takes."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.catalog import load_gpu
from predictor.datasets.kernel_operations import (
    GEMMS, MEMORY_OPS, MemoryOp, memory_op, portable_attention,
)
from predictor.datasets.kernel_schema import PASSES
from predictor.lowering.tables import Dtype, Floats, Ints, KernelKind, KernelTable, Phase
from predictor.spec.cluster import Gpu
from predictor.spec.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

UNKNOWN_GPU = "GPU is not in the catalogue"
SHAPES = ("batch", "m", "n", "k", "seq", "seq_kv", "heads", "kv_heads", "head_dim", "head_dim_v",
          "window", "experts", "topk")
"""Columns that, with ``causal``, say how much work a row is."""
_DTYPES = {"fp32": Dtype.FP32, "tf32": Dtype.TF32, "fp16": Dtype.FP16, "bf16": Dtype.BF16,
           "fp8": Dtype.FP8, "nvfp4": Dtype.FP4}
_WIDTH_BYTES = np.array([4.0, 4.0, 2.0, 2.0, 1.0, 0.5])
_PHASES = {"fwd": Phase.FORWARD, "bwd": Phase.BACKWARD, "dgrad": Phase.BACKWARD,
           "wgrad": Phase.WEIGHT, "step": Phase.STEP}
_WHOLE = ("kind", "phase", "dtype", "device", "portable")
Words = np.ndarray[Any, Any]


@lru_cache(maxsize=256)
def known_gpu(name: str) -> Gpu | None:
    """Return the catalogue's GPU of that name or alias, None where it has none."""
    try:
        return load_gpu(name)
    except InputError:
        return None


class KernelRows:
    """The cells of a tidy table as arrays, one entry per row."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame
        self.rows = len(frame)
        names = self.words("gpu")
        known = {name: gpu for name in sorted(set(names)) if (gpu := known_gpu(name)) is not None}
        self.gpus = list(known.values())
        index = {name: row for row, name in enumerate(known)}
        self.device = _codes(names, index)
        self.op = self.words("op")
        self.passes = self.words("pass")
        self.dtype = _codes(self.words("dtype"), _DTYPES)
        self.seconds: Floats = self.number("latency_s", np.nan)

    def words(self, name: str) -> Words:
        """Return a column of texts, shape (rows,), dtype object; equal cells are one object."""
        import pandas as pd

        # Millions of rows repeat a few words: a text of its own for each would take gigabytes.
        codes, words = pd.factorize(self.frame[name])
        return np.asarray(words, dtype=object)[codes]

    def number(self, name: str, blank: float) -> Floats:
        """Return a numeric column, shape (rows,), with ``blank`` for NaN."""
        values = self.frame[name].to_numpy(dtype=np.float64)
        return np.where(np.isnan(values), blank, values)

    def reasons(self) -> Words:
        """Return why each row cannot be read, empty where it can; shape (rows,)."""
        known = np.isin(self.op, [*GEMMS, *MEMORY_OPS, "attention"])
        shaped = np.where(self.op == "attention",
                          self.number("seq", 0) * self.number("head_dim", 0),
                          self.number("m", 0) * self.number("n", 0))
        shaped = shaped * np.where(np.isin(self.op, list(GEMMS)), self.number("k", 0), 1.0) > 0
        timed = (self.seconds > 0) & np.isfinite(self.seconds)
        cases = ((self.device < 0, UNKNOWN_GPU), (~known, "unknown operation"),
                 (~np.isin(self.passes, PASSES), "unknown pass"),
                 (self.dtype < 0, "unknown data type"), (~shaped, "blank shape"),
                 (~timed, "no time"))
        return np.select([case for case, _ in cases], [why for _, why in cases], "").astype(object)

    def shapes(self, rows: Ints) -> Floats:
        """Return the work of each of ``rows``: :data:`SHAPES` and causality, blanks as -1."""
        columns = [self.number(name, -1.0)[rows] for name in SHAPES]
        return np.stack([*columns, (self.words("causal")[rows] == "1").astype(float)], axis=1)

    def kernels(self, rows: Ints) -> tuple[KernelTable, Ints]:
        """Return the kernels of ``rows`` and, for each, its position in ``rows``."""
        gemm = np.isin(self.op[rows], list(GEMMS))
        attention = self.op[rows] == "attention"
        way = self.passes[rows]
        parts = [
            self._gemm(rows, np.flatnonzero(gemm & (way == "fwd")), Phase.FORWARD),
            self._gemm(rows, np.flatnonzero(gemm & np.isin(way, ["bwd", "dgrad"])), Phase.BACKWARD),
            self._gemm(rows, np.flatnonzero(gemm & np.isin(way, ["bwd", "wgrad"])), Phase.WEIGHT),
            self._attention(rows, np.flatnonzero(attention)),
            self._memory(rows, np.flatnonzero(~gemm & ~attention))]
        stacked = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        measurement = stacked.pop("measurement").astype(np.int64)
        columns: dict[str, Any] = {name: column.astype(np.int64) if name in _WHOLE else column
                                   for name, column in stacked.items()}
        return KernelTable(**columns), measurement

    def _shared(self, rows: Ints, at: Ints, **columns: Floats | Ints | float) -> dict[str, Any]:
        filled = {"measurement": at, "dtype": self.dtype[rows[at]], "device": self.device[rows[at]],
                  "causal": 1.0, "flops": 0.0, "launches": 1.0, "portable": 0.0} | columns
        return {name: np.broadcast_to(np.asarray(value, dtype=np.float64), (len(at),))
                for name, value in sorted(filled.items())}

    def _gemm(self, rows: Ints, at: Ints, phase: Phase) -> dict[str, Any]:
        where = rows[at]
        batch = np.maximum(self.number("batch", 1.0)[where], 1.0)
        m, n, k = (self.number(name, 1.0)[where] for name in ("m", "n", "k"))
        shapes = {Phase.FORWARD: (m, n, k), Phase.BACKWARD: (m, k, n), Phase.WEIGHT: (n, k, m)}
        rows_, columns, depth = shapes[phase]
        size = _WIDTH_BYTES[self.dtype[where]]
        out = np.maximum(size, 2.0)
        kind = np.array([GEMMS[word] for word in self.op[where]], dtype=np.float64)
        return self._shared(
            rows, at, kind=kind, phase=float(phase), batch=batch, m=rows_, n=columns, k=depth,
            flops=2 * batch * rows_ * columns * depth,
            bytes=batch * (size * depth * (rows_ + columns) + out * rows_ * columns))

    def _attention(self, rows: Ints, at: Ints) -> dict[str, Any]:
        """Backward repeats the scores and has four more products (FlashAttention-2,
        arXiv 2307.08691, section 3.1): three of the query's width, two of the value's."""
        where = rows[at]
        heads, seq = self.number("heads", 1.0)[where], self.number("seq", 1.0)[where]
        samples, width = self.number("batch", 1.0)[where], self.number("head_dim", 1.0)[where]
        keys = _default(self.number("seq_kv", 0.0)[where], seq)
        value = _default(self.number("head_dim_v", 0.0)[where], width)
        groups = _default(self.number("kv_heads", 0.0)[where], heads)
        share = score_share(seq, keys, causal=self.words("causal")[where] == "1",
                            window=_default(self.number("window", 0.0)[where], np.inf))
        backward = self.passes[where] != "fwd"
        products = np.where(backward, 3 * width + 2 * value, width + value)
        traffic = (width + value) * samples * (heads * seq + groups * keys)
        portable = [portable_attention(word) for word in self.words("impl")[where]]
        return self._shared(
            rows, at, kind=float(KernelKind.ATTENTION), batch=samples * heads, m=seq, n=keys,
            phase=np.where(backward, Phase.BACKWARD, Phase.FORWARD), k=width, causal=share,
            flops=2 * samples * heads * seq * keys * share * products,
            bytes=np.where(backward, 2.5, 1.0) * traffic * _WIDTH_BYTES[self.dtype[where]],
            launches=np.where(backward, 2.0, 1.0), portable=np.array(portable, dtype=np.float64))

    def _memory(self, rows: Ints, at: Ints) -> dict[str, Any]:
        where = rows[at]
        backward = ~np.isin(self.passes[where], ["fwd", "step"])
        found = [memory_op(op, name) for op, name
                 in zip(self.op[where], self.words("impl")[where], strict=True)]
        width = _WIDTH_BYTES[self.dtype[where]]
        m, n = self.number("m", 1.0)[where], self.number("n", 1.0)[where]
        each = width * _either(found, backward, "forward", "backward") + np.array(
            [one.other_bytes for one in found])
        phase = np.array([_PHASES[word] for word in self.passes[where]], dtype=np.float64)
        return self._shared(
            rows, at, kind=np.array([one.kind for one in found], dtype=np.float64), batch=1.0,
            phase=phase, m=m, n=n, k=0.0, bytes=m * n * each + self._table(where, width),
            launches=_either(found, backward, "forward_launches", "backward_launches"))


    def _table(self, where: Ints, width_bytes: Floats) -> Floats:
        """Return what an embedding's table of known length adds to one access per token, bytes.

        Forward reads no more rows than the table has; backward writes a dense gradient.
        """
        length, tokens = self.number("k", np.inf)[where], self.number("m", 0.0)[where]
        fewer = np.minimum(length, tokens) - tokens
        dense = np.where(np.isfinite(length), length, 0.0)
        rows = np.where(self.passes[where] == "fwd", fewer, dense + fewer)
        row_bytes = self.number("n", 0.0)[where] * width_bytes
        return np.where(self.op[where] == "embedding", rows * row_bytes, 0.0)


def score_share(queries: Floats, keys: Floats, *, causal: Words, window: Floats) -> Floats:
    """Return the share of the (queries, keys) scores that is computed.

    A causal mask lets query i see the keys up to i + keys - queries, so that the last query sees
    all; a window of w leaves each query the w last of the keys it sees. All arrays have shape
    (rows,); ``window`` is infinite where there is none.
    """
    seen = np.minimum(window, keys)
    rows = np.minimum(queries, keys)  # queries that see any key
    hidden = np.maximum(keys - queries, 0.0)  # keys that the first query sees beside its own
    growing = np.clip(seen - hidden, 0.0, rows)  # queries whose keys are fewer than the window
    count = growing * (2 * hidden + growing + 1) / 2 + (rows - growing) * seen
    return np.where(causal, count / (queries * keys), seen / keys)


def _default(values: Floats, other: Floats | float) -> Floats:
    return np.where(values > 0, values, other)


def _codes(words: Words, codes: dict[str, Any]) -> Ints:
    """Return the code of each word, -1 where it has none."""
    return np.array([codes.get(word, -1) for word in words], dtype=np.int64)


def _either(found: list[MemoryOp], backward: Words, forward_field: str, backward_field: str
            ) -> Floats:
    return np.where(backward, np.array([getattr(one, backward_field) for one in found]),
                    np.array([getattr(one, forward_field) for one in found]))
