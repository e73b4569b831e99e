"""Weight gradients that Transformer Engine keeps for autograd's sake."""

from __future__ import annotations

import pytest
from builders import batch, gpt, job

from predictor.lowering.holdings import RankIndex
from predictor.lowering.parameters import part_parameters
from predictor.lowering.parts import Part, build_stages
from predictor.memory.stubs import stub_bytes


def stubs(work=None, **strategy):
    one = batch(work or job(), **strategy)
    stages = build_stages(one)
    return stub_bytes(one, stages, RankIndex.of(one, stages)), part_parameters(one)


@pytest.mark.parametrize("layers", [4, 32])
def test_one_layer_once_more_however_many_there_are(layers):
    found, parameters = stubs(job(gpt(num_layers=layers)))
    layer = parameters.dense[0, Part.ATTENTION] + parameters.dense[0, Part.MLP]
    assert found.tolist() == pytest.approx([2 * layer])


def test_tensor_parallelism_divides_them():
    assert stubs(tp=4)[0][0] == pytest.approx(stubs()[0][0] / 4, rel=0.01)


def test_experts_have_one_shape():
    model = gpt(num_experts=8, moe_router_topk=2, moe_ffn_hidden_size=2048)
    few, many = (stubs(job(model), ep=ep)[0][0] for ep in (8, 1))
    assert few == many


@pytest.mark.parametrize(("work", "strategy"), [
    ({"workload": "lora", "lora_rank": 8}, {}), ({"implementation": "megatron-fused"}, {}),
    ({"framework": "torchtitan"}, {}), ({}, {"zero_stage": 3})])
def test_none_without_the_engine_its_gradients_or_its_main_gradients(work, strategy):
    assert stubs(job(**work), **strategy)[0][0] == 0
