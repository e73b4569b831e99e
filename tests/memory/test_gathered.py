"""Whole layers under FSDP, and buffers of gradients."""

from __future__ import annotations

import pytest
from builders import batch, gpt, job

from predictor.lowering.holdings import RankIndex, held_parameters
from predictor.lowering.parameters import part_parameters
from predictor.lowering.parts import Part, build_stages
from predictor.memory.gathered import BUCKET_PARAMETERS
from predictor.memory.states import model_states

MODEL = gpt(num_layers=16)


def states(framework, **strategy):
    """Return the states, the parameters of every rank and those of a layer and of both ends."""
    one = batch(job(MODEL, num_nodes=2, framework=framework), **strategy)
    stages = build_stages(one)
    ranks = RankIndex.of(one, stages)
    dense = part_parameters(one).dense[0]
    layer, ends = (dense[list(parts)].sum() for parts in (
        (Part.ATTENTION, Part.MLP), (Part.EMBEDDING, Part.HEAD)))
    return model_states(one, stages, ranks), held_parameters(one, stages, ranks).dense, layer, ends


def test_two_layers_and_the_gradient_of_one():
    found, _, layer, _ = states("llm-foundry", zero_stage=3)
    assert found.gathered[0] == pytest.approx((2 * 2 + 2) * layer)


def test_torchtitan_keeps_the_embedding_and_the_output_layer_too():
    found, _, layer, ends = states("torchtitan", zero_stage=3)
    assert found.gathered[0] == pytest.approx((2 * 2 + 2) * layer + (2 + 2) * ends)


def test_everything_stays_gathered_without_resharding():
    found, whole, layer, _ = states("llm-foundry", zero_stage=3, reshard_after_forward=False)
    assert found.gathered[0] == pytest.approx(2 * whole[0] + 2 * layer)


def test_pipelines_of_torchtitan_keep_parameters_and_fp32_gradients_whole():
    found, whole, _, _ = states("torchtitan", zero_stage=3, pp=4)
    assert found.gathered.tolist() == pytest.approx((6 * whole).tolist())


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_nothing_is_gathered_below_stage_3(stage):
    assert states("huggingface", zero_stage=stage)[0].gathered[0] == 0


def test_deepspeed_reduces_through_a_bucket_of_half_a_billion_gradients():
    assert states("deepspeed", zero_stage=2)[0].buckets[0] == 2 * BUCKET_PARAMETERS
    assert states("deepspeed", zero_stage=0)[0].buckets[0] == 0


def test_ddp_copies_gradients_into_buckets():
    found = states("huggingface", zero_stage=0)[0]
    assert found.buckets[0] == pytest.approx(found.gradients[0])


def test_megatron_reduces_gradients_where_they_lie():
    assert states("megatron", zero_stage=1)[0].buckets[0] == 0


@pytest.mark.parametrize(("framework", "grad_reduce_dtype", "per_share"), [
    ("deepspeed", "bf16", 6), ("deepspeed", "fp32", 0), ("megatron", "bf16", 0)])
def test_deepspeed_casts_the_gradients_of_its_share_when_it_steps(
        framework, grad_reduce_dtype, per_share):
    found, whole, _, _ = states(framework, zero_stage=1, grad_reduce_dtype=grad_reduce_dtype)
    assert found.step[0] == pytest.approx(per_share * whole[0] / 16)


def test_sixteen_bytes_where_parameters_are_their_own_masters():
    """fp32 parameters, gradients and two moments."""
    found, whole, _, _ = states("torchtitan", zero_stage=3)
    total = (found.parameters + found.gradients + found.optimizer)[0]
    assert total == pytest.approx(16 * whole[0] / 16)
