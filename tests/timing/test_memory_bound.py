"""Seconds of kernels that only move data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_tables import GPUS, ON_A100, ON_H100, table

from predictor.lowering.tables import Dtype, KernelKind, Phase
from predictor.timing.device import LAUNCH_S
from predictor.timing.memory_bound import memory_bound_times

KINDS = [kind for kind in KernelKind if kind > KernelKind.ATTENTION]
PHASES = [Phase.FORWARD, Phase.BACKWARD, Phase.STEP]


@given(kind=st.sampled_from(KINDS), phase=st.sampled_from(PHASES),
       size=st.floats(0, 1e11), flops=st.floats(0, 1e13), launches=st.integers(1, 50),
       device=st.sampled_from([ON_A100, ON_H100]))
def test_never_faster_than_traffic_arithmetic_or_launches(kind, phase, size, flops, launches,
                                                          device):
    kernels = table(kind=kind, phase=phase, bytes=size, flops=flops, launches=launches,
                    device=device)
    seconds = memory_bound_times(kernels, GPUS)
    assert seconds >= size / GPUS.memory_bandwidth_bytes_per_s[device]
    assert seconds >= flops / GPUS.peak_flops[device, Dtype.BF16]
    assert seconds >= LAUNCH_S * launches


def test_an_empty_kernel_takes_its_launch():
    assert memory_bound_times(table(kind=KernelKind.NORM), GPUS) == pytest.approx([LAUNCH_S])


@pytest.mark.parametrize("kind", KINDS)
def test_large_kernels_reach_half_to_nine_tenths_of_the_bandwidth(kind):
    seconds = memory_bound_times(table(kind=kind, bytes=2.039e9), GPUS)
    assert 0.45 < 1e-3 / seconds[0] < 0.95


def test_time_grows_in_proportion_to_bytes():
    times = memory_bound_times(table(kind=KernelKind.ELEMENTWISE, bytes=[1e9, 2e9, 4e9]), GPUS)
    assert np.diff(times - LAUNCH_S)[1] == pytest.approx(2 * np.diff(times - LAUNCH_S)[0])


def test_twice_the_bandwidth_halves_the_time():
    times = memory_bound_times(
        table(kind=KernelKind.OPTIMIZER, phase=Phase.STEP, dtype=Dtype.FP32, bytes=1e10,
              device=[ON_A100, ON_H100]), GPUS) - LAUNCH_S
    assert times[0] / times[1] == pytest.approx(3.35 / 2.039)
