"""Seconds of matrix products."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_tables import GPUS, ON_A100, ON_H100, gemm, share_of_peak

from predictor.lowering.tables import Dtype, KernelKind
from predictor.timing.device import Regime
from predictor.timing.gemm import gemm_times

SIZES = st.integers(1, 20_000)
DEVICES = st.sampled_from([ON_A100, ON_H100])
REGIMES = st.sampled_from(list(Regime))


@given(m=SIZES, n=SIZES, k=SIZES, device=DEVICES, regime=REGIMES)
def test_never_faster_than_the_peak_or_the_memory(m, n, k, device, regime):
    kernels = gemm(m, n, k, device=device)
    seconds = gemm_times(kernels, GPUS, regime)
    assert seconds > kernels.flops / GPUS.peak_flops[device, Dtype.BF16]
    assert seconds > kernels.bytes / GPUS.memory_bandwidth_bytes_per_s[device]


@pytest.mark.parametrize(("device", "low", "high"), [(ON_A100, 0.65, 0.9), (ON_H100, 0.6, 0.8)])
def test_a_large_bf16_product_in_training_reaches_a_known_share_of_the_peak(device, low, high):
    """A100: cuBLAS reaches 200 to 270 of 312 TFLOP/s. H100: 600 to 750 of 989 at its power limit
    (Megatron-LM's and FlashAttention-3's plots)."""
    kernels = gemm(8192, 8192, 8192, device=device)
    assert low < share_of_peak(gemm_times(kernels, GPUS), kernels) < high


def test_a_kernel_measured_alone_runs_no_slower_than_in_training():
    kernels = gemm(8192, 8192, 8192, device=[ON_A100, ON_H100])
    alone = gemm_times(kernels, GPUS, Regime.ISOLATED)
    assert np.all(alone <= gemm_times(kernels, GPUS, Regime.TRAINING))


@given(m=SIZES, n=SIZES, k=SIZES, device=DEVICES)
def test_more_rows_are_never_faster(m, n, k, device):
    once, twice = gemm_times(gemm([m, 2 * m], n, k, device=device), GPUS)
    assert twice >= once * (1 - 1e-9)


@given(m=SIZES, n=SIZES, k=SIZES, device=DEVICES)
def test_a_group_of_one_is_a_plain_product(m, n, k, device):
    kinds = [KernelKind.GEMM, KernelKind.GROUPED_GEMM]
    plain, grouped = gemm_times(gemm(m, n, k, kind=kinds, device=device), GPUS)
    assert plain == grouped


def test_a_group_is_slower_than_one_product_of_the_same_work():
    one = gemm_times(gemm(8 * 512, 4096, 4096), GPUS)
    grouped = gemm_times(gemm(512, 4096, 4096, batch=8, kind=KernelKind.GROUPED_GEMM), GPUS)
    assert grouped > one


def test_one_tile_more_than_a_full_wave_costs_part_of_a_second_wave():
    """108 multiprocessors: 12 x 9 tiles of 128 x 256 fill one wave of an A100, 12 x 10 do not.

    A kernel without persistent blocks would take twice as long, and a perfectly balanced one
    10 / 9.
    """
    full, over = gemm_times(gemm(12 * 128, [9 * 256, 10 * 256], 8192), GPUS)
    assert 10 / 9 * 1.05 < over / full < 2


def test_few_tiles_leave_most_of_the_device_idle():
    kernels = gemm(128, 128, 128)
    assert share_of_peak(gemm_times(kernels, GPUS), kernels) < 0.01


def test_each_launch_adds_its_gap():
    one, two = gemm_times(gemm(1024, 1024, 1024, launches=[1, 2]), GPUS)
    assert two - one == pytest.approx(3.5e-6, rel=0.5)


def test_scalar_products_reach_more_of_their_lower_peak():
    kernels = gemm(8192, 8192, 8192, dtype=[Dtype.FP32, Dtype.BF16])
    shares = share_of_peak(gemm_times(kernels, GPUS), kernels)
    times = gemm_times(kernels, GPUS)
    assert shares[0] > shares[1]
    assert times[0] > 10 * times[1]


def test_fp8_runs_faster_than_bf16_where_the_hardware_has_it_and_equally_fast_elsewhere():
    hopper = gemm_times(gemm(8192, 8192, 8192, dtype=[Dtype.FP8, Dtype.BF16], device=ON_H100), GPUS)
    assert 1.3 < hopper[1] / hopper[0] < 2
