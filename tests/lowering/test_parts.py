"""How layers are split over stages."""

from __future__ import annotations

import pytest
from builders import batch, gpt, job
from hypothesis import given
from hypothesis import strategies as st

from predictor.lowering.parts import Part, build_stages


def layers(num_layers: int, **strategy: object) -> list[int]:
    work = job(gpt(num_layers=num_layers), num_nodes=16)
    return build_stages(batch(work, **strategy)).counts[:, Part.LAYER].tolist()


def test_layers_that_divide_are_shared_equally() -> None:
    assert layers(96, pp=8) == [12] * 8


def test_a_remainder_goes_to_the_middle() -> None:
    assert layers(10, pp=4) == [2, 3, 3, 2]


def test_embedding_and_loss_may_count_as_layers() -> None:
    assert layers(30, pp=4, account_for_embedding_in_split=True,
                  account_for_loss_in_split=True) == [7, 8, 8, 7]


def test_first_and_last_stage_may_be_given() -> None:
    assert layers(126, pp=16, num_layers_first_stage=7, num_layers_last_stage=7) == [
        7, *[8] * 14, 7]


def test_an_explicit_layout_wins() -> None:
    assert layers(8, pp=4, pipeline_layout=(1, 2, 2, 3)) == [1, 2, 2, 3]


def test_the_ends_sit_on_the_first_and_last_global_stage() -> None:
    stages = build_stages(batch(job(gpt(num_layers=16)), pp=4, vpp=2))
    assert stages.counts[:, Part.EMBEDDING].tolist() == [1] + [0] * 7
    assert stages.counts[:, Part.HEAD].tolist() == [0] * 7 + [1]
    assert stages.rank.tolist() == [0, 1, 2, 3] * 2
    assert stages.chunk.tolist() == [0] * 4 + [1] * 4


def test_leading_dense_layers_and_intervals_of_experts() -> None:
    model = gpt(num_layers=6, num_experts=8, moe_router_topk=2, moe_num_dense_layers=2,
                moe_layer_interval=2)
    counts = build_stages(batch(job(model))).counts[0]
    assert (counts[Part.MLP], counts[Part.MOE]) == (4, 2)


def test_hybrid_pattern_is_followed() -> None:
    model = gpt(num_layers=6, layer_pattern="M*-M-M", mamba_num_heads=64)
    counts = build_stages(batch(job(model))).counts[0]
    assert (counts[Part.MAMBA], counts[Part.ATTENTION], counts[Part.MLP]) == (3, 1, 2)


@given(st.integers(1, 130), st.sampled_from([1, 2, 4, 8, 16]), st.sampled_from([1, 2, 3]))
def test_no_layer_is_lost_and_stages_differ_by_at_most_one(
    num_layers: int, pp: int, vpp: int
) -> None:
    split = layers(num_layers, pp=pp, vpp=vpp)
    assert sum(split) == num_layers
    assert max(split) - min(split) <= 1


@pytest.mark.parametrize("window_interval", [0, 4])
def test_windowed_layers_are_kept_apart(window_interval: int) -> None:
    model = gpt(num_layers=8, sliding_window=1024, full_attention_interval=window_interval)
    counts = build_stages(batch(job(model))).counts[0]
    full = 2 if window_interval else 0
    assert (counts[Part.ATTENTION], counts[Part.LOCAL_ATTENTION]) == (full, 8 - full)
