"""Tables of kernels written by shape, and the GPUs to time them on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from builders import A100, H100

from predictor.lowering.tables import Dtype, GpuTable, KernelKind, KernelTable, Phase

GPUS = GpuTable.from_gpus([A100, H100])
ON_A100, ON_H100 = 0, 1
INTEGERS = ("kind", "phase", "dtype", "device", "portable")


def table(**columns: Any) -> KernelTable:
    """Return the table of ``columns``, each a value or a sequence of one length."""
    fields: dict[str, Any] = {
        "kind": KernelKind.GEMM, "phase": Phase.FORWARD, "dtype": Dtype.BF16, "device": ON_A100,
        "batch": 1, "m": 1, "n": 1, "k": 0, "causal": 1, "flops": 0, "bytes": 0, "launches": 1,
        "portable": 0}
    arrays = np.broadcast_arrays(*[np.atleast_1d(value) for value in (fields | columns).values()])
    typed = {name: array.astype(np.int64 if name in INTEGERS else np.float64)
             for name, array in zip(fields | columns, arrays, strict=True)}
    return KernelTable(**typed)


def gemm(m: Any, n: Any, k: Any, *, batch: Any = 1, **columns: Any) -> KernelTable:
    """Return bf16 GEMMs with output (m, n) and contraction k."""
    m, n, k, batch = (np.asarray(value, dtype=float) for value in (m, n, k, batch))
    return table(m=m, n=n, k=k, batch=batch, flops=2 * batch * m * n * k,
                 bytes=2 * batch * (m * k + n * k + m * n), **columns)


def attention(
    seq_len: Any, *, heads: int = 64, width: Any = 128, causal: Any = 0.5, backward: bool = False,
    **columns: Any,
) -> KernelTable:
    """Return fused attentions of ``heads`` heads times samples over ``seq_len`` tokens."""
    seq_len, width, causal = (np.asarray(value, dtype=float) for value in (seq_len, width, causal))
    flops = 4 * heads * seq_len**2 * width * causal * (2.5 if backward else 1)
    return table(
        kind=KernelKind.ATTENTION, phase=Phase.BACKWARD if backward else Phase.FORWARD, m=seq_len,
        n=seq_len, k=width, batch=heads, causal=causal, flops=flops,
        bytes=2 * 4 * heads * seq_len * width * (2 if backward else 1), **columns)


def share_of_peak(times: Sequence[float] | Any, kernels: KernelTable) -> Any:
    """Return the FLOP per second over the data sheet's peak."""
    return kernels.flops / times / GPUS.peak_flops[kernels.device, kernels.dtype]
