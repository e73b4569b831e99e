"""The strategy that a row's cells describe."""

from __future__ import annotations

import pytest

from predictor.spec.errors import InputError


@pytest.mark.parametrize(("cell", "gpu", "expected"), [
    ("fp16", "A100", ("fp16", "delayed")),
    ("bf16/fp16 (not stated)", "A100", ("bf16", "delayed")),
    ("fp8", "H100", ("fp8", "delayed")),
    ("fp8-cs", "B200", ("fp8", "current")),
    ("fp8 tensorwise", "H100", ("fp8", "current")),
    ("fp8 rowwise", "H100", ("fp8", "rowwise")),
    ("fp8-mx", "B200", ("mxfp8", "delayed")),
    ("fp8-mx(or h100 subchannel)", "H100", ("fp8", "blockwise")),
    ("nvfp4", "B200", ("nvfp4", "delayed")),
])
def test_precision(read, cell, gpu, expected):
    _, strategy, _ = read(precision=cell, gpu=gpu)
    assert (strategy.precision, strategy.fp8_recipe) == expected


def test_precision_qualifiers(read):
    assert read(precision="fp8(linear, float8 all-gather)", gpu="H100")[1].fp8_param_gather
    assert read(precision="bf16(grad accumulation fp32)")[1].grad_reduce_dtype == "fp32"


@pytest.mark.parametrize(("cell", "kind", "layers", "modules"), [
    ("none", "none", None, ()),
    ("full", "full", None, ()),
    ("full(block,21 layers)", "full", 21, ()),
    ("full(num_layers=5)", "full", 5, ()),
    ("selective", "selective", None, ()),
    ("selective(attention core)", "selective", None, ()),
    ("selective(modules=layernorm,moe_act)", "selective", None, ("layernorm", "moe_act")),
    ("selective(modules=mla_up_proj,mlp)", "selective", None, ("mla_up_proj", "mlp")),
])
def test_recompute(read, cell, kind, layers, modules):
    _, strategy, assumed = read(recompute=cell)
    assert strategy.recompute == kind
    assert strategy.recompute_num_layers == layers
    assert strategy.recompute_modules == modules
    assert "recompute" not in assumed


def test_a_blank_recompute_is_assumed(read):
    _, strategy, assumed = read(recompute=None)
    assert strategy.recompute == assumed["recompute"]["value"] == "none"


@pytest.mark.parametrize(("cells", "stage", "shard", "reshard"), [
    ({"zero_stage": "0"}, 0, None, True),
    ({"zero_stage": "1 (dist-opt)"}, 1, None, True),
    ({"zero_stage": "3", "fsdp": 1.0}, 3, None, True),
    ({"zero_stage": "2/3 (FSDP default reshard policy for PP)", "fsdp": 1.0}, 3, None, False),
    ({"fsdp": 8.0}, 3, 8, True),
    ({"fsdp": 64.0}, 3, None, True),
    ({"fsdp": 0.0, "framework": "NeMo/Megatron-LM"}, 1, None, True),
])
def test_sharding(read, cells, stage, shard, reshard):
    _, strategy, _ = read(**cells)
    assert strategy.zero_stage == stage
    assert strategy.dp_shard == shard
    assert strategy.reshard_after_forward is reshard


def test_overlapped_gathers_imply_a_sharded_optimizer(read):
    _, strategy, assumed = read(overlap="overlap-param-gather")
    assert (strategy.overlap_param_gather, strategy.zero_stage) == (True, 1)
    assert assumed["zero_stage"]["value"] == 1


@pytest.mark.parametrize(("cells", "schedule", "vpp"), [
    ({"schedule": "1f1b (DeepSpeed pipe)"}, "1f1b", 1),
    ({"schedule": "interleaved-1f1b", "vpp": 3.0}, "interleaved-1f1b", 3),
    ({"schedule": "interleaved-1f1b (v not stated)", "vpp": None}, "interleaved-1f1b", 2),
    ({"schedule": "interleaved or default 1f1b (not stated)", "vpp": None}, "1f1b", 1),
    ({"schedule": "zb-2p"}, "zb-2p", 1),
    ({"schedule": "1f1b", "vpp": None, "framework": "NeMo"}, "interleaved-1f1b", 6),
])
def test_schedule(read, cells, schedule, vpp):
    _, strategy, assumed = read(pp=4.0, **cells)
    assert (strategy.schedule, strategy.vpp) == (schedule, vpp)
    assert ("vpp" in assumed) == (cells.get("vpp", 1) is None)


def test_overlap_switches(read):
    cell = "overlap_grad_sync,overlap_param_sync,overlap_p2p; ub_tp_comm_overlap=false"
    _, strategy, _ = read(overlap=cell, zero_stage="1")
    assert (strategy.overlap_grad_reduce, strategy.overlap_param_gather) == (True, True)
    assert (strategy.overlap_p2p, strategy.tp_comm_overlap) == (True, False)


@pytest.mark.parametrize("cell", ["none", "none (explicitly disabled)"])
def test_overlap_can_be_off(read, cell):
    _, strategy, _ = read(overlap=cell)
    assert (strategy.overlap_grad_reduce, strategy.overlap_param_gather) == (False, False)


def test_a_blank_overlap_is_left_to_the_framework(read):
    assert read(overlap=None)[1].overlap_grad_reduce is None


@pytest.mark.parametrize(("cell", "graphs", "dispatcher"), [
    ("cuda_graph=transformer_engine/['attn', 'moe_router'],dispatcher=hybridep", "partial",
     "hybridep"),
    ("cuda_graph=none/full_iteration", "none", "alltoall"),
    ("cuda_graph=local/full_iteration", "full", "alltoall"),
    ("tp_comm_overlap,cuda_graph", "full", "alltoall"),
    ("moe_a2a_overlap,dispatcher=deepep", "none", "deepep"),
])
def test_graphs_and_dispatcher(read, cell, graphs, dispatcher):
    _, strategy, _ = read(overlap=cell)
    assert (strategy.cuda_graphs, strategy.moe_dispatcher) == (graphs, dispatcher)
    assert strategy.ep_overlap == ("moe_a2a_overlap" in cell)


@pytest.mark.parametrize(("cell", "activations", "optimizer"), [
    ("none", 0.0, 0.0), (None, 0.0, 0.0), ("activation cpu_offloading_num_layers=6", 0.25, 0.0),
    ("cpu", 0.0, 1.0), ("0.5", 0.0, 0.5), ("optimizer (50 %)", 0.0, 0.5)])
def test_offload(read, cell, activations, optimizer):
    _, strategy, _ = read(optimizer_offload=cell)
    assert (strategy.activation_offload, strategy.optimizer_offload) == (activations, optimizer)


def test_micro_batch_follows_from_accumulation(read):
    _, strategy, assumed = read(micro_batch=None, grad_accum=1.0)
    assert strategy.micro_batch_size == 2
    assert "micro_batch_size" in assumed


def test_a_stated_dp_must_agree(read):
    assert read(dp=64.0)[1].dp == 64
    with pytest.raises(InputError, match="dp 32 x tp x pp x cp is 32 but num_gpus is 64"):
        read(dp=32.0)
