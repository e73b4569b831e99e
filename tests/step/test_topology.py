"""Tensor parallelism across nodes costs what it costs in measured runs."""

from __future__ import annotations

from dataclasses import replace

from predictor.catalog import load_cluster
from predictor.spec.cluster import Cluster
from predictor.spec.job import TrainingJob
from predictor.spec.model import ModelConfig
from predictor.spec.strategy import Strategy
from predictor.step.predict import predict_step

GPT_20B = ModelConfig(num_layers=44, hidden_size=6144, num_attention_heads=64, vocab_size=50257,
                      parallel_residual=True, add_bias_linear=True)


def step_s(cluster: Cluster, *, tp: int, pp: int) -> float:
    """Return the step time of GPT-20B on 32 nodes of four GPUs (arXiv 2509.22832)."""
    job = TrainingJob(model=GPT_20B, cluster=cluster, seq_len=2048, global_batch_size=256,
                      framework="megatron-deepspeed", attention_backend="fused-softmax")
    return predict_step(job, Strategy(tp=tp, pp=pp, micro_batch_size=4, zero_stage=1,
                                      recompute="full", precision="fp16")).step_time_s


def test_eight_tensor_ranks_on_nodes_of_four_are_slower() -> None:
    perlmutter = load_cluster("perlmutter", 32)
    assert step_s(perlmutter, tp=8, pp=4) > step_s(perlmutter, tp=4, pp=8)


def test_a_sick_network_makes_them_three_times_slower() -> None:
    # Measured at about 1.2 GB/s per GPU across nodes: 42.5 s against 9.2 s, a factor of 4.6.
    inner, outer = load_cluster("perlmutter", 32).levels
    sick = replace(load_cluster("perlmutter", 32), levels=(
        inner, replace(outer, bandwidth_bytes_per_s=1.2e9, links=1, gpus_sharing=1)))
    slow, fast = step_s(sick, tp=8, pp=4), step_s(sick, tp=4, pp=8)
    assert slow > 3 * fast
    assert 0.75 < slow / 42.5 < 1.25
    assert 0.75 < fast / 9.2 < 1.25
