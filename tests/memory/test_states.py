"""Bytes of parameters, gradients and optimizer state."""

from __future__ import annotations

import pytest
from builders import batch, gpt, job
from hypothesis import given
from hypothesis import strategies as st

from predictor.lowering.holdings import RankIndex, held_parameters
from predictor.lowering.parts import build_stages
from predictor.memory.states import ModelStates, model_states

SHARDS = 16


def states(work=None, **strategy) -> tuple[ModelStates, float]:
    """Return the states of a pipeline's ranks and the parameters of its first."""
    one = batch(work or job(num_nodes=2), **strategy)
    stages = build_stages(one)
    ranks = RankIndex.of(one, stages)
    held = held_parameters(one, stages, ranks)
    return model_states(one, stages, ranks), held.dense[0] + held.expert[0]


def per_parameter(**strategy) -> float:
    """Return the bytes of all states per parameter of rank 0, gathered layers apart."""
    found, parameters = states(**strategy)
    return (found.parameters + found.gradients + found.optimizer)[0] / parameters


@pytest.mark.parametrize(("stage", "expected"), [
    (0, 16), (1, 4 + 12 / SHARDS), (2, 2 + 14 / SHARDS), (3, 16 / SHARDS)])
def test_zero_divides_sixteen_bytes_stage_by_stage(stage, expected):
    """Mixed-precision Adam with fp16 gradients (ZeRO, arXiv 1910.02054, figure 1)."""
    assert per_parameter(precision="fp16", zero_stage=stage) == pytest.approx(expected)


@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_the_published_example_of_zero(stage, gigabytes):
    """7.5 B parameters over 64 GPUs (ZeRO, arXiv 1910.02054, figure 1)."""
    found, parameters = states(job(num_nodes=8), precision="fp16", zero_stage=stage)
    total = (found.parameters + found.gradients + found.optimizer)[0]
    assert total * 7.5e9 / parameters / 1e9 == pytest.approx(gigabytes, abs=0.1)


@pytest.mark.parametrize(("stage", "expected"), [(0, 18), (1, 6 + 12 / SHARDS)])
def test_the_distributed_optimizer_of_megatron(stage, expected):
    """bf16 parameters and fp32 gradients: 18 bytes, or 6 + 12 / d (Megatron-LM,
    docs/source/api-guide/dist_optimizer.md)."""
    assert per_parameter(precision="bf16", zero_stage=stage) == pytest.approx(expected)


def test_fp32_keeps_no_second_copy():
    assert per_parameter(precision="fp32") == pytest.approx(16)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_sharding_inside_a_group_divides_by_the_group_only(stage):
    eight = per_parameter(precision="fp16", zero_stage=stage, dp_shard=8)
    assert eight > per_parameter(precision="fp16", zero_stage=stage)


def test_fsdp_frameworks_shard_the_master_copy_and_cast_what_they_gather():
    """FSDP mixed precision keeps fp32 parameters, gradients and two moments: 16 bytes, sharded."""
    found, parameters = states(job(num_nodes=2, framework="torchtitan"), zero_stage=3)
    assert found.parameters[0] == 0
    assert (found.gradients + found.optimizer)[0] / parameters == pytest.approx(16 / SHARDS)


def test_fsdp_gathers_two_layers_and_the_gradient_of_one():
    layer = 12 * 4096**2 + 13 * 4096
    found, _ = states(precision="fp16", zero_stage=3)
    assert found.gathered[0] == pytest.approx(layer * (2 * 2 + 2))
    assert states(precision="fp16", zero_stage=2)[0].gathered[0] == 0


def test_expert_states_are_sharded_over_the_replicas_of_experts():
    model = gpt(num_experts=16, moe_router_topk=2, moe_ffn_hidden_size=4096)
    work = job(model, num_nodes=2)
    eight, _ = states(work, ep=8, zero_stage=1, precision="fp16")
    experts = 4 * 2 * 2 * 4096 * 4096
    dense = states(job(gpt(num_experts=16, moe_router_topk=2, moe_ffn_hidden_size=1),
                       num_nodes=2), ep=8, zero_stage=1, precision="fp16")[0].optimizer[0]
    assert eight.optimizer[0] - dense == pytest.approx(12 * experts / 2, rel=1e-3)


def test_lora_keeps_frozen_weights_and_little_else():
    found, parameters = states(job(workload="lora", lora_rank=16))
    assert found.parameters[0] == pytest.approx(2 * parameters)
    assert (found.gradients + found.optimizer)[0] < 0.01 * 16 * parameters


@pytest.mark.parametrize(("optimizer", "expected"), [
    ("adam", 8), ("adam-8bit", 2), ("sgd", 4), ("muon", 4)])
def test_optimizers_differ_by_their_moments(optimizer, expected):
    found, parameters = states(job(optimizer=optimizer))
    assert found.optimizer[0] / parameters - 4 == pytest.approx(expected)


@given(share=st.floats(0, 1), stage=st.integers(0, 3))
def test_offload_moves_the_optimizer_and_nothing_else(share, stage):
    kept, _ = states(zero_stage=stage)
    moved, _ = states(zero_stage=stage, optimizer_offload=share)
    assert moved.optimizer[0] == pytest.approx((1 - share) * kept.optimizer[0])
    assert moved.parameters[0] == kept.parameters[0]
