"""What nobody gave is the framework's default, and is said to be."""

from __future__ import annotations

import pytest

from predictor.spec.resolve import FRAMEWORKS, resolve
from predictor.spec.rules.rule import ALL


def test_every_framework_has_defaults():
    assert FRAMEWORKS.keys() == ALL
    assert all(defaults.source for defaults in FRAMEWORKS.values())


def test_dp_is_what_is_left(pair):
    _, strategy, _ = resolve(*pair(tp=4, pp=2))
    assert (strategy.dp, strategy.dp_shard) == (4, 4)


def test_shards_include_context_parallel_ranks(pair):
    _, strategy, _ = resolve(*pair(tp=4, cp=2))
    assert (strategy.dp, strategy.dp_shard) == (4, 8)


def test_given_dp_is_kept(pair):
    _, strategy, _ = resolve(*pair(dp=5))
    assert strategy.dp == 5


@pytest.mark.parametrize(("precision", "dtype"), [
    ("bf16", "fp32"), ("fp16", "fp16"), ("fp8", "fp32"), ("fp32", "fp32")])
def test_megatron_reduces_bf16_gradients_in_fp32(pair, precision, dtype):
    _, strategy, _ = resolve(*pair(precision=precision))
    assert strategy.grad_reduce_dtype == dtype


def test_schedule_follows_vpp(pair):
    assert resolve(*pair(pp=4))[1].schedule == "1f1b"
    assert resolve(*pair(pp=4, vpp=2))[1].schedule == "interleaved-1f1b"


def test_experts_take_the_tensor_degree(pair):
    moe = {"num_experts": 8, "moe_router_topk": 2}
    assert resolve(*pair(tp=4, **moe))[1].etp == 4
    assert resolve(*pair(tp=4))[1].etp == 1


def test_nemo_recipes_keep_experts_whole(pair):
    moe = {"num_experts": 8, "moe_router_topk": 2}
    assert resolve(*pair(tp=4, framework="nemo", **moe))[1].etp == 1


def test_overlapping_tensor_parallel_communication_implies_sequence_parallel(pair):
    assert resolve(*pair(tp=4, tp_comm_overlap=True))[1].sequence_parallel is True


def test_sequence_parallel_needs_tp_to_be_a_default(pair):
    assert resolve(*pair(framework="nemo", tp=2))[1].sequence_parallel is True
    assert resolve(*pair(framework="nemo"))[1].sequence_parallel is False


def test_parameter_gathering_is_a_default_only_where_parameters_are_gathered(pair):
    assert resolve(*pair(framework="nemo", zero_stage=1))[1].overlap_param_gather is True
    assert resolve(*pair(framework="nemo"))[1].overlap_param_gather is False
    assert resolve(*pair(framework="megatron", zero_stage=3))[1].overlap_param_gather is True


def test_every_default_is_recorded_with_its_source(pair):
    job, _, assumed = resolve(*pair(pp=4))
    assert assumed["schedule"] == {"value": "1f1b", "source": "Megatron-LM training/arguments.py"}
    assert assumed["implementation"]["value"] == job.implementation == "transformer-engine"


def test_given_values_are_not_assumed(pair):
    _, strategy, assumed = resolve(*pair(overlap_grad_reduce=True, implementation="eager"))
    assert strategy.overlap_grad_reduce is True
    assert not assumed.keys() & {"overlap_grad_reduce", "implementation"}


def test_nothing_stays_open(pair):
    _, strategy, _ = resolve(*pair())
    open_fields = {name for name in ("schedule", "sequence_parallel", "grad_reduce_dtype",
                                     "overlap_grad_reduce", "overlap_param_gather", "etp", "dp",
                                     "dp_shard", "tp_comm_overlap", "overlap_p2p")
                   if getattr(strategy, name) is None}
    assert open_fields == set()
