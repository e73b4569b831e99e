from __future__ import annotations

from dataclasses import replace
from typing import Any

import builders
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from predictor.lowering.tables import Dtype, GpuTable, KernelKind, KernelTable, Phase
from predictor.timing.device import MAX_SHARE, Regime
from predictor.timing.kernels import kernel_times

UNKNOWN = replace(builders.A100, name="new", architecture="not-yet-built", tdp_w=0.0)
GPUS = GpuTable.from_gpus([builders.A100, builders.H100, UNKNOWN])
WHOLE = ("kind", "phase", "dtype", "device", "portable")


def table(kind: KernelKind, **columns: Any) -> KernelTable:
    fields: dict[str, Any] = {
        "kind": kind, "phase": Phase.FORWARD, "dtype": Dtype.BF16, "device": 0, "batch": 1.0,
        "m": 0.0, "n": 0.0, "k": 0.0, "causal": 1.0, "flops": 0.0, "bytes": 0.0, "launches": 1.0,
        "portable": 0}
    return KernelTable(**{name: np.array([value], np.int64 if name in WHOLE else np.float64)
                          for name, value in (fields | columns).items()})


def gemm(m: float, n: float, k: float, **columns: Any) -> KernelTable:
    return table(KernelKind.GEMM, m=m, n=n, k=k, flops=2 * m * n * k,
                 bytes=2 * (m * k + k * n + m * n), **columns)


def attention(batch: float, seq: float, width: float, **columns: Any) -> KernelTable:
    return table(KernelKind.ATTENTION, batch=batch, m=seq, n=seq, k=width,
                 flops=4 * batch * seq * seq * width, bytes=8 * batch * seq * width, **columns)


def seconds(kernels: KernelTable, regime: Regime = Regime.TRAINING) -> float:
    return float(kernel_times(kernels, GPUS, regime)[0])


sizes = st.integers(1, 20_000).map(float)
devices = st.integers(0, 2)


@given(sizes, sizes, sizes, devices)
def test_no_gemm_beats_the_peak_or_the_memory(m: float, n: float, k: float, device: int) -> None:
    one = gemm(m, n, k, device=device)
    assert seconds(one) > one.flops[0] / GPUS.peak_flops[device, Dtype.BF16]
    assert seconds(one) > one.bytes[0] / GPUS.memory_bandwidth_bytes_per_s[device]


@given(sizes, sizes, sizes, devices)
def test_twice_the_rows_never_take_less(m: float, n: float, k: float, device: int) -> None:
    assert seconds(gemm(2 * m, n, k, device=device)) >= seconds(gemm(m, n, k, device=device))


@given(sizes, sizes, sizes)
def test_a_gpu_twice_as_fast_in_everything_is_never_slower(m: float, n: float, k: float) -> None:
    fast = replace(
        builders.A100, bf16_flops=624e12, fp16_flops=624e12, tdp_w=800,
        memory_bandwidth_bytes_per_s=4.078e12)
    one = gemm(m, n, k)
    assert kernel_times(one, GpuTable.from_gpus([fast]))[0] <= seconds(one)


@given(st.integers(1, 64).map(float), st.integers(1, 16_384).map(float),
       st.sampled_from([32.0, 64.0, 80.0, 96.0, 128.0, 160.0, 256.0]), devices)
def test_no_attention_beats_the_peak(batch: float, seq: float, width: float, device: int) -> None:
    one = attention(batch, seq, width, device=device)
    assert seconds(one) > one.flops[0] / GPUS.peak_flops[device, Dtype.BF16]
    assert seconds(attention(batch, 2 * seq, width, device=device)) >= seconds(one)


@given(st.sampled_from([kind for kind in KernelKind if kind > KernelKind.ATTENTION]),
       st.floats(1, 1e12), devices)
def test_moving_data_takes_longer_than_the_bandwidth_allows(
    kind: KernelKind, size: float, device: int
) -> None:
    one = table(kind, bytes=size, device=device)
    assert seconds(one) > size / GPUS.memory_bandwidth_bytes_per_s[device]


def test_rows_are_timed_alone_and_in_company_alike() -> None:
    kernels = [gemm(4096, 4096, 4096), attention(32, 2048, 128),
               table(KernelKind.NORM, bytes=1e8), gemm(128, 128, 8192, device=1)]
    together = KernelTable(**{name: np.concatenate([getattr(one, name) for one in kernels])
                              for name in KernelTable.__dataclass_fields__})
    assert np.allclose(kernel_times(together, GPUS), [seconds(one) for one in kernels])


def test_a_training_step_is_never_faster_than_a_kernel_alone() -> None:
    for device in range(3):
        for dtype in (Dtype.FP32, Dtype.BF16):
            one = gemm(8192, 8192, 8192, device=device, dtype=dtype)
            assert seconds(one) >= seconds(one, Regime.ISOLATED)


def test_power_never_lifts_a_gemm_above_the_issue_limit() -> None:
    cool = replace(builders.H100, tdp_w=10_000.0)
    one = gemm(16384, 16384, 16384)
    rate = one.flops[0] / kernel_times(one, GpuTable.from_gpus([cool]))[0]
    assert rate < MAX_SHARE * cool.bf16_flops
