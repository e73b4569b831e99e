"""Records check themselves and derive what can be derived."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from predictor.spec.checks import LARGEST
from predictor.spec.cluster import Cluster, LinkLevel, NodeGroup
from predictor.spec.errors import InputError, Problem
from predictor.spec.job import TrainingJob
from predictor.spec.model import ModelConfig
from predictor.spec.strategy import Strategy


def _model(**settings) -> ModelConfig:
    base = {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100}
    return ModelConfig(**base | settings)


def _rules(make) -> list[str]:
    with pytest.raises(InputError) as caught:
        make()
    return [problem.rule for problem in caught.value.problems]


def test_model_derives_its_widths():
    model = _model(num_experts=4, moe_router_topk=2)
    assert (model.ffn_hidden_size, model.num_query_groups, model.head_dim,
            model.moe_ffn_hidden_size) == (256, 4, 16, 256)


def test_records_are_frozen():
    with pytest.raises(FrozenInstanceError):
        _model().num_layers = 3


def test_head_dim_must_divide_unless_it_is_given():
    assert _rules(lambda: _model(num_attention_heads=5)) == [
        "num-attention-heads-divides-hidden-size"]
    assert _model(num_attention_heads=5, head_dim=16).head_dim == 16


def test_every_bad_size_of_a_model_is_reported():
    assert _rules(lambda: _model(num_layers=0, hidden_size=-1, vocab_size=LARGEST + 1)) == [
        "positive"] * 3


def test_query_groups_divide_heads():
    assert _rules(lambda: _model(num_query_groups=3)) == [
        "num-query-groups-divides-num-attention-heads"]


def test_topk_needs_experts():
    assert _rules(lambda: _model(moe_router_topk=2)) == ["topk-needs-experts"]


def test_topk_is_at_most_the_experts():
    assert _rules(lambda: _model(num_experts=2, moe_router_topk=3)) == ["within"]


def test_layer_pattern_is_checked():
    assert _rules(lambda: _model(layer_pattern="*x-")) == [
        "layer-pattern-characters", "layer-pattern-length"]


def test_strategy_reports_all_degrees():
    assert _rules(lambda: Strategy(tp=0, pp=-1, zero_stage=4)) == [
        "positive", "positive", "within"]


def test_lora_needs_a_rank(pair):
    job, _ = pair()
    assert _rules(lambda: replace(job, workload="lora")) == ["lora-needs-rank"]
    assert replace(job, workload="lora", lora_rank=16).lora_rank == 16


def test_job_sizes_are_positive(pair):
    job, _ = pair()
    assert _rules(lambda: TrainingJob(model=job.model, cluster=job.cluster, seq_len=0,
                                      global_batch_size=0)) == ["positive", "positive"]


def test_cluster_counts_its_gpus(pair):
    job, _ = pair(nodes=3)
    assert job.cluster.num_gpus == 24
    assert job.cluster.gpu.name == "Test H100"


def test_cluster_needs_nodes_and_links():
    assert _rules(lambda: Cluster(groups=(), levels=())) == [
        "cluster-has-nodes", "cluster-has-links"]


def test_levels_are_ordered_inside_out(pair):
    job, _ = pair()
    inner, outer = job.cluster.levels
    assert _rules(lambda: replace(job.cluster, levels=(outer, inner))) == ["levels-inside-out"]


def test_shared_adapters_are_divided():
    """Eight GPUs behind four HDR adapters of 25 GB/s get 12.5 GB/s each."""
    level = LinkLevel(name="hdr", kind="infiniband", bandwidth_bytes_per_s=25e9, latency_s=5e-6,
                      links=4, gpus_sharing=8)
    assert level.bandwidth_per_gpu_bytes_per_s == 12.5e9
    assert replace(level, oversubscription=2.0).bandwidth_per_gpu_bytes_per_s == 6.25e9


def test_node_counts_are_positive(pair):
    job, _ = pair()
    assert _rules(lambda: NodeGroup(gpu=job.cluster.gpu, gpus_per_node=0)) == ["positive"]


def test_problem_reads_as_one_line():
    problem = Problem("a-rule", "tp 3 must divide 32", "choose 2", "tp")
    assert str(problem) == "tp: tp 3 must divide 32; choose 2 [a-rule]"
