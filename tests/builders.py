"""Small, complete records that tests change one field of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from predictor.lowering.batch import Batch
from predictor.spec.cluster import Cluster, Gpu, LinkLevel, NodeGroup
from predictor.spec.job import TrainingJob
from predictor.spec.model import ModelConfig
from predictor.spec.resolve import resolve
from predictor.spec.strategy import Strategy

A100 = Gpu(
    name="a100-sxm-80gb", architecture="ampere", sm_count=108, boost_clock_hz=1.41e9,
    l2_bytes=40e6, memory_bytes=80e9, usable_memory_bytes=85_899_345_920.0,
    memory_bandwidth_bytes_per_s=2.039e12, fp32_flops=19.5e12, tf32_flops=156e12,
    fp16_flops=312e12, bf16_flops=312e12, tdp_w=400)
H100 = replace(
    A100, name="h100-sxm", architecture="hopper", sm_count=132, boost_clock_hz=1.83e9,
    l2_bytes=50e6, memory_bandwidth_bytes_per_s=3.35e12, fp32_flops=66.9e12, tf32_flops=494.7e12,
    fp16_flops=989.4e12, bf16_flops=989.4e12, fp8_flops=1978.9e12, tdp_w=700)


def cluster(num_nodes: int = 1, gpu: Gpu = A100, gpus_per_node: int = 8) -> Cluster:
    """Return DGX-like nodes: NVSwitch inside, one 200 Gb/s adapter per GPU between."""
    return Cluster(
        name="test", groups=(NodeGroup(gpu=gpu, gpus_per_node=gpus_per_node, nodes=num_nodes),),
        levels=(
            LinkLevel(name="intra-node", kind="nvlink-switch", span=gpus_per_node,
                      bandwidth_bytes_per_s=300e9, latency_s=2e-6),
            LinkLevel(name="inter-node", kind="infiniband", bandwidth_bytes_per_s=25e9,
                      latency_s=4e-6)))


def gpt(**changes: Any) -> ModelConfig:
    """Return GPT-3 6.7B's layer with four layers, or what ``changes`` make of it."""
    fields: dict[str, Any] = {
        "num_layers": 4, "hidden_size": 4096, "num_attention_heads": 32, "vocab_size": 51200,
        "position_embedding": "learned", "max_position_embeddings": 2048,
        "add_bias_linear": True, "tied_embeddings": True}
    return ModelConfig(**(fields | changes))


def job(model: ModelConfig | None = None, num_nodes: int = 1, **changes: Any) -> TrainingJob:
    """Return a Megatron job on A100 nodes."""
    fields: dict[str, Any] = {
        "model": model or gpt(), "cluster": cluster(num_nodes), "seq_len": 2048,
        "global_batch_size": 64}
    return TrainingJob(**(fields | changes))


def batch(work: TrainingJob | None = None, **strategy: Any) -> Batch:
    """Return the resolved batch of one strategy."""
    resolved, chosen, _ = resolve(work or job(), Strategy(**strategy))
    return Batch.from_pairs([resolved], [chosen])
