"""Every rule is broken once, and kept by a neighbour of what breaks it."""

from __future__ import annotations

import timeit
from dataclasses import replace

import pytest

from predictor.spec.resolve import resolve
from predictor.spec.rules import HARD, SOFT, check_strategy, heuristics
from predictor.spec.rules.grid import WITHOUT
from predictor.spec.rules.pipeline import SCHEDULES
from predictor.spec.rules.rule import ALL
from predictor.spec.strategy import LayerOverride, Strategy

MOE = {"num_experts": 8, "moe_router_topk": 2, "moe_ffn_hidden_size": 14336}
MLA = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
MAMBA = {"layer_pattern": "M*" * 16, "mamba_num_heads": 128, "mamba_num_groups": 8}

# rule, settings that break it, settings beside them that keep it
CASES = [
    ("degrees-fill-cluster", {"dp": 16}, {"dp": 32}),
    ("degrees-fill-cluster", {"tp": 4, "dp": 2}, {"tp": 4, "dp": 8}),
    ("shards-divide-replicas", {"dp_shard": 3, "zero_stage": 3}, {"dp_shard": 8, "zero_stage": 3}),
    ("dimension-in-framework", {"framework": "huggingface", "pp": 2},
     {"framework": "huggingface", "tp": 2}),
    ("batch-divisible-by-replicas", {"global_batch_size": 100}, {"global_batch_size": 96}),
    ("heads-divisible-by-tp", {"num_attention_heads": 36, "head_dim": 128, "num_query_groups": 4,
                               "tp": 8}, {"tp": 8}),
    ("kv-groups-fit-tp", {"num_attention_heads": 24, "head_dim": 128, "num_query_groups": 3,
                          "tp": 8},
     {"num_attention_heads": 24, "head_dim": 128, "num_query_groups": 2, "tp": 8}),
    ("kv-groups-divisible-by-tp", {"framework": "torchtitan", "num_query_groups": 4, "tp": 8},
     {"framework": "torchtitan", "num_query_groups": 8, "tp": 8}),
    ("ffn-divisible-by-tp", {"ffn_hidden_size": 11004, "tp": 8},
     {"ffn_hidden_size": 11008, "tp": 8}),
    ("expert-ffn-divisible-by-etp", MOE | {"moe_ffn_hidden_size": 1002, "tp": 4, "etp": 4},
     MOE | {"moe_ffn_hidden_size": 1002, "tp": 4, "etp": 2}),
    ("shared-expert-divisible-by-tp", MOE | {"moe_shared_expert_ffn_hidden_size": 1002, "tp": 4},
     MOE | {"moe_shared_expert_ffn_hidden_size": 1004, "tp": 4}),
    ("mamba-divisible-by-tp", MAMBA | {"mamba_num_groups": 2, "tp": 4}, MAMBA | {"tp": 4}),
    ("sequence-parallel-needs-tp", {"sequence_parallel": True},
     {"sequence_parallel": True, "tp": 2}),
    ("sequence-divisible-by-tp", {"seq_len": 1026, "sequence_parallel": True, "tp": 4},
     {"seq_len": 1026, "tp": 4}),
    ("tp-overlap-needs-sequence-parallel",
     {"tp_comm_overlap": True, "tp": 4, "sequence_parallel": False},
     {"tp_comm_overlap": True, "tp": 4}),
    ("sequence-divisible-by-twice-cp", {"seq_len": 8196, "cp": 4}, {"seq_len": 8200, "cp": 4}),
    ("sequence-divisible-by-cp", {"framework": "deepspeed", "seq_len": 8194, "cp": 4},
     {"framework": "deepspeed", "seq_len": 8196, "cp": 4}),
    ("ulysses-heads-divisible", {"cp": 8, "tp": 4, "num_attention_heads": 16,
                                 "num_query_groups": 8, "head_dim": 128, "cp_comm_type": "a2a"},
     {"cp": 8, "tp": 4, "cp_comm_type": "a2a"}),
    ("ulysses-heads-divisible", {"cp": 4, "num_attention_heads": 24, "num_query_groups": 6,
                                 "head_dim": 128, "cp_comm_type": "a2a"},
     {"cp": 4, "num_attention_heads": 24, "num_query_groups": 6, "head_dim": 128}),
    ("expert-parallel-needs-experts", {"ep": 2}, MOE | {"ep": 2}),
    ("experts-divisible-by-ep", MOE | {"ep": 16}, MOE | {"ep": 8}),
    ("expert-grid-divides-stage", MOE | {"ep": 8, "tp": 8, "pp": 4}, MOE | {"ep": 8, "pp": 4}),
    ("expert-grid-divides-shard", MOE | {"framework": "torchtitan", "ep": 8, "dp_shard": 4,
                                         "zero_stage": 3},
     MOE | {"framework": "torchtitan", "ep": 4, "dp_shard": 4, "zero_stage": 3}),
    ("expert-parallel-inside-data-parallel", MOE | {"framework": "deepspeed", "ep": 8, "tp": 8,
                                                    "etp": 1},
     MOE | {"framework": "deepspeed", "ep": 4, "tp": 8, "etp": 1}),
    ("expert-overlap-allowed", MOE | {"ep": 8, "ep_overlap": True, "recompute": "full"},
     MOE | {"ep": 8, "ep_overlap": True}),
    ("direct-dispatch-needs-expert-parallel", MOE | {"moe_dispatcher": "deepep"},
     MOE | {"moe_dispatcher": "deepep", "ep": 8}),
    ("schedule-in-framework", {"framework": "deepspeed", "pp": 2, "schedule": "gpipe"},
     {"framework": "torchtitan", "pp": 2, "schedule": "gpipe"}),
    ("chunks-need-interleaving", {"pp": 4, "vpp": 2, "schedule": "1f1b"}, {"pp": 4, "vpp": 2}),
    ("chunks-need-pipeline", {"vpp": 2}, {"vpp": 2, "pp": 4}),
    ("chunks-on-two-ranks-need-overlap", {"vpp": 2, "pp": 2, "overlap_p2p": False},
     {"vpp": 2, "pp": 2}),
    ("interleaving-fills-pipeline", {"vpp": 2, "pp": 8, "global_batch_size": 16},
     {"vpp": 2, "pp": 8, "global_batch_size": 36}),
    ("interleaving-divides-batch",
     {"framework": "megatron-deepspeed", "vpp": 2, "pp": 8, "global_batch_size": 36},
     {"framework": "megatron-deepspeed", "vpp": 2, "pp": 8, "global_batch_size": 32}),
    ("stages-hold-layers", {"num_layers": 5, "pp": 8}, {"num_layers": 6, "pp": 8}),
    ("layout-covers-model", {"pp": 4, "pipeline_layout": (8, 8, 8)},
     {"pp": 4, "pipeline_layout": (7, 9, 9, 7)}),
    ("layout-covers-model", {"pp": 4, "pipeline_layout": (8, 8, 8, 9)},
     {"pp": 4, "pipeline_layout": (8, 8, 8, 8)}),
    ("one-way-to-split",
     {"pp": 4, "pipeline_layout": (8, 8, 8, 8), "account_for_loss_in_split": True},
     {"pp": 4, "account_for_embedding_in_split": True, "account_for_loss_in_split": True}),
    ("ends-leave-layers", {"pp": 8, "num_layers_first_stage": 16, "num_layers_last_stage": 16},
     {"pp": 8, "num_layers_first_stage": 1, "num_layers_last_stage": 1}),
    ("inner-stages-alike", {"pp": 4, "num_layers_last_stage": 6},
     {"pp": 4, "num_layers_last_stage": 5}),
    ("tied-embeddings-without-pipeline",
     {"framework": "torchtitan", "tied_embeddings": True, "pp": 2},
     {"framework": "torchtitan", "tied_embeddings": True}),
    ("zero-bubble-without-full-recompute", {"pp": 4, "schedule": "zb-h1", "recompute": "full"},
     {"pp": 4, "schedule": "zb-h1"}),
    ("zero-with-pipeline", {"framework": "deepspeed", "zero_stage": 2, "pp": 2},
     {"framework": "torchtitan", "zero_stage": 3, "pp": 2}),
    ("fsdp-without-pipeline", {"zero_stage": 3, "pp": 2}, {"zero_stage": 3}),
    ("parameter-overlap-needs-sharding", {"overlap_param_gather": True,
                                          "overlap_grad_reduce": True},
     {"overlap_param_gather": True, "overlap_grad_reduce": True, "zero_stage": 1}),
    ("parameter-overlap-needs-gradient-overlap", {"overlap_param_gather": True, "zero_stage": 1},
     {"zero_stage": 1}),
    ("precision-in-hardware", {"precision": "fp8", "fp8_flops": 0.0}, {"precision": "fp8"}),
    ("precision-in-hardware", {"precision": "mxfp8"},
     {"precision": "mxfp8", "fp4_flops": 9e15, "architecture": "blackwell"}),
    ("low-precision-in-framework", {"framework": "libai", "precision": "fp8"},
     {"framework": "nanotron", "precision": "fp8"}),
    ("low-precision-widths", {"precision": "fp8", "ffn_hidden_size": 11000, "tp": 8},
     {"precision": "fp8", "ffn_hidden_size": 11008, "tp": 8}),
    ("low-precision-parameters", {"fp8_param_gather": True, "zero_stage": 1},
     {"fp8_param_gather": True, "zero_stage": 1, "precision": "fp8"}),
    ("low-precision-parameters", {"fp8_param_gather": True, "precision": "fp8"}, {}),
    ("flash-attention-in-hardware", {"architecture": "volta"},
     {"architecture": "volta", "attention_backend": "fused-softmax"}),
    ("flash-attention-head-size", {"head_dim": 512},
     {"head_dim": 512, "attention_backend": "eager"}),
    ("recompute-layers-need-full", {"recompute": "selective", "recompute_num_layers": 2},
     {"recompute": "full", "recompute_num_layers": 2}),
    ("recompute-layers-within-model", {"recompute": "full", "recompute_num_layers": 33},
     {"recompute": "full", "recompute_num_layers": 32}),
    ("recompute-modules-need-selective", {"recompute_modules": ("mlp",)},
     {"recompute_modules": ("mlp",), "recompute": "selective"}),
    ("recompute-modules-in-model", {"recompute_modules": ("moe_act",), "recompute": "selective"},
     MOE | {"recompute_modules": ("moe_act",), "recompute": "selective"}),
    ("recompute-modules-in-model", {"recompute_modules": ("mla_up_proj",),
                                    "recompute": "selective"},
     MLA | {"recompute_modules": ("mla_up_proj",), "recompute": "selective"}),
    ("activation-offload-alone", {"activation_offload": 0.5, "recompute": "full"},
     {"activation_offload": 0.5}),
    ("one-setting-for-all-layers", {"layer_overrides": (LayerOverride(num_layers=2, tp=1),)}, {}),
    ("layers-within-reach", {"num_layers": 10_001}, {"num_layers": 10_000}),
    ("sizes-within-reach", {"vocab_size": 2**24 + 1}, {"vocab_size": 2**24}),
    ("tokens-within-reach", {"micro_batch_size": 8, "seq_len": 2**26, "global_batch_size": 256},
     {"micro_batch_size": 4, "seq_len": 2**26, "global_batch_size": 256}),
    ("stages-within-reach", {"num_layers": 512, "pp": 32, "vpp": 16},
     {"num_layers": 512, "pp": 32, "vpp": 8}),
]

ADVICE = [
    ("tp-inside-node", {"tp": 16}, {"tp": 8}),
    ("micro-batches-fill-pipeline", {"pp": 8, "global_batch_size": 16},
     {"pp": 8, "global_batch_size": 32}),
    ("experts-with-tp-want-sequence-parallel", MOE | {"tp": 2},
     MOE | {"tp": 2, "sequence_parallel": True}),
    ("fsdp-with-tp-before-blackwell", {"zero_stage": 3, "tp": 2},
     {"zero_stage": 3, "tp": 2, "architecture": "blackwell"}),
    ("interleaving-needs-chunks", {"pp": 4, "schedule": "interleaved-1f1b"}, {"pp": 4}),
    ("shard-size-is-used", {"dp_shard": 4}, {"dp_shard": 4, "zero_stage": 1}),
]


@pytest.mark.parametrize(("rule", "broken", "kept"), CASES)
def test_rule_is_broken_alone_and_kept(pair, rule, broken, kept):
    assert _rules(check_strategy, pair(**broken)) == [rule]
    assert _rules(check_strategy, pair(**kept)) == []


@pytest.mark.parametrize(("rule", "broken", "kept"), ADVICE)
def test_advice_is_given_and_not_given(pair, rule, broken, kept):
    assert rule in _rules(heuristics, pair(**broken))
    assert rule not in _rules(heuristics, pair(**kept))
    assert _rules(check_strategy, pair(**broken)) == []


def test_every_rule_has_a_case():
    assert {rule.name for rule in HARD} - {case[0] for case in CASES} == {"one-kind-of-gpu"}
    assert {rule.name for rule in SOFT} == {case[0] for case in ADVICE}


def test_two_kinds_of_gpu_are_refused(pair):
    job, strategy = pair()
    groups = (replace(job.cluster.groups[0], nodes=2),) * 2
    job = replace(job, cluster=replace(job.cluster, groups=groups))
    assert _rules(check_strategy, (job, strategy)) == ["one-kind-of-gpu"]


def test_all_problems_come_back_at_once(pair):
    job, strategy, _ = resolve(*pair(tp=3, global_batch_size=101, ep=2, precision="nvfp4"))
    found = check_strategy(job, strategy)
    assert {"degrees-fill-cluster", "batch-divisible-by-replicas", "expert-parallel-needs-experts",
            "heads-divisible-by-tp", "precision-in-hardware"} <= {p.rule for p in found}
    for problem in found:
        assert problem.message
        assert problem.remedy
        assert "\n" not in str(problem)


def test_rule_names_are_unique():
    names = [rule.name for rule in (*HARD, *SOFT)]
    assert len(names) == len(set(names))


def test_every_framework_with_pipelines_lists_its_schedules():
    without = {name for name, missing in WITHOUT.items() if "pp" in missing}
    assert SCHEDULES.keys() | without == ALL


@pytest.mark.parametrize("framework", sorted(ALL))
def test_plain_data_parallelism_is_legal_everywhere(pair, framework):
    job, strategy = pair(framework=framework)
    assert _rules(check_strategy, (job, strategy)) == []


def test_frameworks_disagree_on_key_value_heads(pair):
    settings = {"num_query_groups": 8, "tp": 16}
    assert _rules(check_strategy, pair(**settings)) == []
    assert _rules(check_strategy, pair(**settings, framework="torchtitan")) == [
        "kv-groups-divisible-by-tp"]


@pytest.mark.parametrize("framework", sorted(ALL))
def test_framework_defaults_are_legal_with_every_zero_stage(pair, framework):
    for stage in range(4):
        job, _ = pair(framework=framework)
        assert _rules(check_strategy, (job, Strategy(tp=2, zero_stage=stage))) == []


def _rules(check, pair) -> list[str]:
    job, strategy, _ = resolve(*pair)
    return [problem.rule for problem in check(job, strategy)]


def test_checking_a_pair_takes_under_sixty_microseconds(pair):
    """The best of ten runs: other work on the machine only ever adds time."""
    job, strategy, _ = resolve(*pair(tp=4, pp=2, zero_stage=1, **MOE))
    best_s = min(timeit.repeat(lambda: check_strategy(job, strategy), number=200, repeat=10)) / 200
    assert best_s < 60e-6
