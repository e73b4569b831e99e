"""What a GPU sustains of its data sheet."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from builders import A100, H100
from kernel_tables import gemm

from predictor.lowering.tables import Dtype, GpuTable
from predictor.timing.device import MAX_SHARE, Regime, sustained_flops


def share(gpu, dtype=Dtype.BF16, regime=Regime.TRAINING):
    gpus = GpuTable.from_gpus([gpu])
    rate = sustained_flops(gemm(1, 1, 1, dtype=dtype), gpus, regime)
    return (rate / gpus.peak_flops[0, dtype]).item()


@pytest.mark.parametrize("gpu", [A100, H100])
@pytest.mark.parametrize("regime", Regime)
@pytest.mark.parametrize("dtype", Dtype)
def test_no_type_sustains_its_whole_peak(gpu, regime, dtype):
    assert 0.2 < share(gpu, dtype, regime) < 1


def test_a_card_with_less_power_clocks_lower_than_in_proportion():
    """A100 PCIe: 250 W for the same peak. Clocks fall with the 0.33rd to 0.5th power of power."""
    ratio = share(replace(A100, tdp_w=250)) / share(A100)
    assert (250 / 400) ** 0.5 <= ratio <= (250 / 400) ** (1 / 3)


def test_more_power_helps_up_to_a_limit():
    shares = [share(replace(H100, tdp_w=watt)) for watt in (350, 500, 700, 1000, 5000)]
    assert np.all(np.diff(shares) > 0)
    assert shares[-1] == pytest.approx(MAX_SHARE)


def test_a_gpu_whose_power_is_unknown_is_taken_as_the_reference():
    assert share(replace(A100, tdp_w=0)) == pytest.approx(share(A100), rel=0.01)


def test_an_unknown_generation_still_gets_a_rate():
    assert 0.4 < share(replace(A100, architecture="riscv")) < 0.9
