from __future__ import annotations

import builders
import numpy as np
import pytest

from predictor.lowering.tables import Dtype, GpuTable, KernelKind, KernelTable, Phase
from predictor.spec.cluster import Gpu
from predictor.timing.device import Regime
from predictor.timing.kernels import kernel_times


def alone_s(gpu: Gpu, kind: KernelKind, flops: float, size_bytes: float, **columns: float) -> float:
    shape = {"batch": 1.0, "m": 1.0, "n": 1.0, "k": 0.0, "causal": 1.0, "launches": 1.0} | columns
    whole = {"kind": int(kind), "phase": int(shape.pop("phase", Phase.FORWARD)),
             "dtype": int(Dtype.FP16), "device": 0, "portable": int(shape.pop("portable", 0))}
    table = KernelTable(
        **{name: np.array([value]) for name, value in whole.items()},
        **{name: np.array([float(value)]) for name, value in shape.items()},
        flops=np.array([flops]), bytes=np.array([size_bytes]))
    return float(kernel_times(table, GpuTable.from_gpus([gpu]), Regime.ISOLATED)[0])


def product_s(gpu: Gpu, m: float, n: float, k: float, batch: float = 1.0) -> float:
    kind = KernelKind.GEMM if batch == 1 else KernelKind.BATCHED_GEMM
    return alone_s(gpu, kind, 2 * batch * m * n * k, 2 * batch * (m * k + k * n + m * n),
                   batch=batch, m=m, n=n, k=k)


@pytest.mark.parametrize(("gpu", "shape", "measured_us"), [
    # arXiv 2509.22832, data of Perlmutter (linear_final) and Vista (linear4), fp16.
    (builders.A100, (10240, 6400, 3584), 1890.2),
    (builders.A100, (5120, 6400, 3584), 969.4),
    (builders.H100, (14336, 8192, 16384), 4898.2),
])
def test_measured_linear_layers(
    gpu: Gpu, shape: tuple[int, int, int], measured_us: float
) -> None:
    assert product_s(gpu, *shape) == pytest.approx(measured_us * 1e-6, rel=0.08)


def test_the_context_product_of_narrow_heads_is_bound_by_memory() -> None:
    # The same data, Perlmutter, bmm: heads of 64 move data at 0.8 of the bandwidth.
    moved = 2 * 64 * (2048 * 2048 + 2 * 2048 * 64)
    share = moved / 2.039e12 / product_s(builders.A100, 2048, 64, 2048, batch=64)
    assert share == pytest.approx(0.8, abs=0.08)


def test_the_score_product_of_narrow_heads_pays_for_its_short_contraction() -> None:
    # The same data, Perlmutter, baddbmm: 0.32 of the peak at a head width of 128.
    share = 2 * 64 * 2048**2 * 128 / 312e12 / product_s(builders.A100, 2048, 2048, 128, batch=64)
    assert share == pytest.approx(0.36, abs=0.06)


@pytest.mark.parametrize(("gpu", "phase", "published_tflops"), [
    # FlashAttention-2 (arXiv 2307.08691, figures 5 and 6): A100, width 128, the repository's own
    # tuned runs; training-sized calls are slower.
    (builders.A100, Phase.FORWARD, 224), (builders.A100, Phase.BACKWARD, 193),
    # cuDNN 9.19 on H200, 64 heads, 32k tokens (cudnn-frontend's benchmarks).
    (builders.H100, Phase.FORWARD, 688), (builders.H100, Phase.BACKWARD, 581),
])
def test_published_rates_of_attention(gpu: Gpu, phase: Phase, published_tflops: float) -> None:
    tokens, heads, width = 32768.0, 64.0, 128.0
    flops = (4 if phase == Phase.FORWARD else 10) * heads * tokens**2 * width
    time = alone_s(gpu, KernelKind.ATTENTION, flops, 8 * heads * tokens * width, phase=phase,
                   batch=heads, m=tokens, n=tokens, k=width)
    assert flops / time / 1e12 == pytest.approx(published_tflops, rel=0.15)


def test_measured_memory_bound_kernels() -> None:
    # The same data, Perlmutter, 16384 x 3584 fp16: residual addition and layer norm, forward.
    size = 16384 * 3584 * 2
    addition = alone_s(builders.A100, KernelKind.ELEMENTWISE, 0.0, 3 * size)
    norm = alone_s(builders.A100, KernelKind.NORM, 0.0, 2 * size)
    assert addition == pytest.approx(206.2e-6, rel=0.1)
    assert norm == pytest.approx(194.6e-6, rel=0.15)
