"""A predicted step obeys physics and adds up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from builders import batch, cluster, gpt, job
from hypothesis import given
from hypothesis import strategies as st

from predictor.lowering.flops import model_flops
from predictor.lowering.parts import build_stages
from predictor.spec.cluster import Cluster
from predictor.spec.errors import InputError
from predictor.spec.job import TrainingJob
from predictor.spec.strategy import Strategy
from predictor.step.document import document
from predictor.step.predict import predict_step, predict_steps

STRATEGIES = st.builds(
    lambda tp, parallel, **rest: Strategy(tp=tp, sequence_parallel=parallel and tp > 1, **rest),
    tp=st.sampled_from([1, 2, 4, 8]), parallel=st.booleans(), pp=st.sampled_from([1, 2, 4]),
    micro_batch_size=st.sampled_from([1, 2]), zero_stage=st.sampled_from([0, 1]),
    recompute=st.sampled_from(["none", "selective", "full"]), overlap_grad_reduce=st.booleans())


def four_nodes(**changes: object) -> TrainingJob:
    """Return a job of four nodes whose batch every strategy above divides."""
    return job(gpt(num_layers=8), num_nodes=4, **changes)


@given(STRATEGIES)
def test_breakdown_sums_to_the_step_time_and_holds_nothing_negative(strategy: Strategy) -> None:
    prediction = predict_step(four_nodes(), strategy)
    parts = prediction.breakdown
    assert sum(parts.values()) == pytest.approx(prediction.step_time_s, rel=1e-9)
    assert min(parts.values()) >= -1e-12


@given(STRATEGIES)
def test_a_step_is_never_faster_than_its_arithmetic_at_peak(strategy: Strategy) -> None:
    prediction = predict_step(four_nodes(), strategy)
    work = prediction.job
    peak = work.cluster.num_gpus * work.cluster.gpu.bf16_flops
    assert prediction.step_time_s >= prediction.model_flops / peak


@given(STRATEGIES)
def test_a_step_is_never_faster_than_its_gradients_on_the_wire(strategy: Strategy) -> None:
    prediction = predict_step(four_nodes(), replace(strategy, overlap_grad_reduce=False))
    chosen = prediction.strategy
    if chosen.dp == 1:
        return
    held = (prediction.times.ranks.dense + prediction.times.ranks.expert).max()
    shares = 1 if chosen.zero_stage else 2
    wire = shares * 4 * held * (chosen.dp - 1) / chosen.dp / 300e9
    assert prediction.step_time_s >= wire


def faster(machine: Cluster, level: int) -> Cluster:
    """Return the machine with twice the bandwidth at one level."""
    levels = list(machine.levels)
    levels[level] = replace(
        levels[level], bandwidth_bytes_per_s=2 * levels[level].bandwidth_bytes_per_s)
    return replace(machine, levels=tuple(levels))


@given(STRATEGIES, st.sampled_from([0, 1]))
def test_doubling_a_bandwidth_never_slows_a_step(strategy: Strategy, level: int) -> None:
    slow = predict_step(four_nodes(), strategy)
    fast = predict_step(replace(four_nodes(), cluster=faster(cluster(4), level)), strategy)
    assert fast.step_time_s <= slow.step_time_s * (1 + 1e-9)


def test_a_tensor_group_across_nodes_is_slower_than_inside() -> None:
    inside = predict_step(four_nodes(), Strategy(tp=8, pp=4))
    across = predict_step(four_nodes(), Strategy(tp=32, pp=1))
    assert across.step_time_s > inside.step_time_s


def test_full_recompute_costs_about_a_third_more_compute() -> None:
    none = predict_step(four_nodes(), Strategy(tp=2)).breakdown["compute_s"]
    full = predict_step(four_nodes(), Strategy(tp=2, recompute="full")).breakdown["compute_s"]
    assert 1.2 < full / none < 1.4


def test_many_pairs_equal_one_by_one() -> None:
    strategies = [Strategy(tp=tp, pp=pp, vpp=vpp, recompute=recompute)
                  for tp in (1, 2, 8) for pp, vpp in ((1, 1), (2, 1), (4, 1), (4, 2))
                  for recompute in ("none", "full")]
    many = predict_steps([four_nodes()] * len(strategies), strategies)
    alone = [predict_step(four_nodes(), strategy).step_time_s for strategy in strategies]
    np.testing.assert_allclose(many.step_time_s, alone, rtol=1e-9)


def test_a_wrong_pair_is_refused_and_leaves_the_others_alone() -> None:
    good = Strategy(tp=2)
    found = predict_steps([four_nodes()] * 3, [good, Strategy(tp=3), good])
    assert [index for index, _ in found.refused] == [1]
    assert np.isnan(found.step_time_s[1])
    assert found.step_time_s[0] == found.step_time_s[2] > 0


def test_a_wrong_strategy_raises_everything_at_once() -> None:
    with pytest.raises(InputError) as caught:
        predict_step(four_nodes(), Strategy(tp=3, pp=5))
    assert len(caught.value.problems) >= 2


def test_model_flops_match_korthikanti_for_gpt_175b() -> None:
    # arXiv 2205.05198, equation 7 without recomputation (their last term is the logits):
    # 72 B s L h^2 (1 + s / (6 h) + V / (12 h L)), which counts the whole score matrix.
    model = gpt(num_layers=96, hidden_size=12288, num_attention_heads=96)
    plan = batch(job(model, num_nodes=8, global_batch_size=64), tp=8, pp=8)
    full = 72 * 64 * 2048 * 96 * 12288**2 * (
        1 + 2048 / (6 * 12288) + 51200 / (12 * 12288 * 96))
    half_the_scores = 72 * 64 * 2048 * 96 * 12288**2 * (2048 / (12 * 12288))
    found = model_flops(plan, build_stages(plan))[0]
    assert found == pytest.approx(full - half_the_scores, rel=0.01)


def test_document_holds_what_other_programs_read() -> None:
    made = document(predict_step(four_nodes(), Strategy(tp=2, pp=2)), version="0.0")
    assert {"schema_version", "predict_time_version", "predictor", "calibration", "step_time_s",
            "low_s", "high_s", "interval_level", "provenance", "breakdown", "throughput",
            "memory", "input"} == set(made)
    assert len(made["memory"]["ranks"]) == 2
    assert made["low_s"] is None
    assert made["throughput"]["tokens_per_s"] == pytest.approx(
        64 * 2048 / made["step_time_s"])


def test_moving_activations_to_the_host_is_not_free() -> None:
    work = job(gpt(num_layers=8), num_nodes=4, seq_len=8192)
    kept = predict_step(work, Strategy(pp=2))
    moved = predict_step(work, Strategy(pp=2, activation_offload=1.0))
    assert moved.step_time_s > kept.step_time_s
    assert moved.predictions.peak_bytes[0] < kept.predictions.peak_bytes[0]


def test_wide_numbers_take_twice_as_long_between_stages() -> None:
    narrow = predict_step(four_nodes(), Strategy(pp=4)).times.link_s[0]
    wide = predict_step(four_nodes(), Strategy(pp=4, precision="fp32")).times.link_s[0]
    assert 1.5 < wide / narrow <= 2.0


def test_gathers_follow_their_own_switch() -> None:
    work = job(gpt(num_layers=8), num_nodes=4, framework="deepspeed")
    both, gathers, neither = (
        predict_step(work, Strategy(zero_stage=3, overlap_param_gather=gather,
                                    overlap_grad_reduce=reduce)).step_time_s
        for gather, reduce in ((True, True), (False, True), (False, False)))
    assert both < gathers < neither


def test_settings_without_effect_are_named() -> None:
    work = job(gpt(num_layers=8), num_nodes=4, lora_rank=8, packed_seq_len=9999)
    ignored = document(predict_step(work, Strategy(moe_dispatcher="deepep")),
                       version="0")["input"]["ignored"]
    assert set(ignored) == {"lora_rank", "packed_seq_len", "moe_dispatcher"}
