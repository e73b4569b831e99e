"""Seconds of fused attention."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_tables import GPUS, ON_A100, ON_H100, attention, share_of_peak

from predictor.timing.attention import attention_times

DEVICES = st.sampled_from([ON_A100, ON_H100])


@given(seq_len=st.integers(1, 60_000), heads=st.integers(1, 256), width=st.integers(16, 256),
       causal=st.sampled_from([0.5, 1.0]), device=DEVICES, backward=st.booleans())
def test_never_faster_than_the_peak_or_the_memory(seq_len, heads, width, causal, device, backward):
    kernels = attention(seq_len, heads=heads, width=width, causal=causal, device=device,
                        backward=backward)
    seconds = attention_times(kernels, GPUS)
    assert seconds > kernels.flops / GPUS.peak_flops[device, kernels.dtype]
    assert seconds > kernels.bytes / GPUS.memory_bandwidth_bytes_per_s[device]


@pytest.mark.parametrize("device", [ON_A100, ON_H100])
def test_a_causal_mask_halves_a_long_sequence_and_less_of_a_short_one(device):
    long = attention_times(attention(32_768, causal=[1.0, 0.5], device=device), GPUS)
    short = attention_times(attention(1024, causal=[1.0, 0.5], device=device), GPUS)
    assert long[0] / long[1] == pytest.approx(2, rel=0.03)
    assert 1 < short[0] / short[1] < long[0] / long[1]


@given(seq_len=st.integers(1, 60_000), width=st.integers(16, 256), device=DEVICES)
def test_backward_is_slower_than_forward(seq_len, width, device):
    forward = attention_times(attention(seq_len, width=width, device=device), GPUS)
    backward = attention_times(attention(seq_len, width=width, device=device, backward=True), GPUS)
    assert backward > forward


def test_backward_takes_more_than_its_work():
    """FlashAttention-2's backward has 2.5 times the products at a lower rate (2307.08691)."""
    forward = attention_times(attention(16_384), GPUS)
    backward = attention_times(attention(16_384, backward=True), GPUS)
    assert 2.5 < backward / forward < 4


@pytest.mark.parametrize(("device", "low", "high"), [(ON_A100, 170e12, 230e12),
                                                     (ON_H100, 500e12, 700e12)])
def test_long_forward_reaches_the_published_rate(device, low, high):
    """FlashAttention-2 on A100: 190 to 225 TFLOP/s causal (2307.08691, figure 5); cuDNN on H100:
    550 to 650 measured alone (2407.08608, figure 5), less at a training job's clock."""
    kernels = attention(16_384, device=device)
    assert low < kernels.flops / attention_times(kernels, GPUS) < high


def test_head_widths_are_padded_to_the_next_compiled_one():
    times = attention_times(attention(8192, width=[80, 96, 100, 128]), GPUS)
    assert times[0] == pytest.approx(times[1], rel=0.01)
    assert times[2] == pytest.approx(times[3], rel=0.01)
    assert times[1] < times[3]


def test_narrow_heads_reach_a_lower_rate():
    kernels = attention(8192, width=[32, 64, 128], device=ON_H100)
    assert np.all(np.diff(share_of_peak(attention_times(kernels, GPUS), kernels)) > 0)


@given(tiles=st.integers(1, 500), more=st.integers(0, 20), device=DEVICES)
def test_longer_sequences_are_never_faster(tiles, more, device):
    """In whole tiles of 128 queries: within a tile the wave count moves in steps."""
    lengths = [128 * tiles, 128 * (tiles + more)]
    short, long = attention_times(attention(lengths, device=device), GPUS)
    assert long >= short * (1 - 1e-9)


def test_portable_kernels_lose_on_hopper_only():
    """FlashAttention-2 reaches 350 of FlashAttention-3's 650 TFLOP/s on H100 (2407.08608)."""
    ampere = attention_times(attention(16_384, portable=[0, 1], device=ON_A100), GPUS)
    hopper = attention_times(attention(16_384, portable=[0, 1], device=ON_H100), GPUS)
    assert ampere[0] == ampere[1]
    assert 1.5 < hopper[1] / hopper[0] < 2.2
