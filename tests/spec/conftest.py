"""A small legal pair, and variations of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from predictor.spec.cluster import Cluster, Gpu, LinkLevel, NodeGroup
from predictor.spec.job import TrainingJob
from predictor.spec.model import ModelConfig
from predictor.spec.strategy import Strategy

GPU = Gpu(
    name="Test H100", architecture="hopper", sm_count=132, boost_clock_hz=1.98e9, l2_bytes=50e6,
    memory_bytes=80e9, usable_memory_bytes=79e9, memory_bandwidth_bytes_per_s=3.35e12,
    fp32_flops=67e12, tf32_flops=495e12, fp16_flops=989e12, bf16_flops=989e12,
    fp8_flops=1979e12)
LEVELS = (
    LinkLevel(name="nvlink", kind="nvlink-switch", span=8, bandwidth_bytes_per_s=450e9,
              latency_s=1e-6),
    LinkLevel(name="ib", kind="infiniband", bandwidth_bytes_per_s=50e9, latency_s=5e-6))
CLUSTER = Cluster(groups=(NodeGroup(gpu=GPU, gpus_per_node=8, nodes=4),), levels=LEVELS)
MODEL = ModelConfig(num_layers=32, hidden_size=4096, num_attention_heads=32, num_query_groups=8,
                    vocab_size=128256, ffn_hidden_size=14336, gated_mlp=True)
JOB = TrainingJob(model=MODEL, cluster=CLUSTER, seq_len=8192, global_batch_size=256)

Pair = Callable[..., tuple[TrainingJob, Strategy]]


@pytest.fixture
def pair() -> Pair:
    """A function from settings (of model, gpu, job or strategy) to a job and a strategy."""

    def make(**settings: Any) -> tuple[TrainingJob, Strategy]:
        def take(record: type[Any]) -> dict[str, Any]:
            names = [field.name for field in fields(record) if field.name in settings]
            return {name: settings.pop(name) for name in names}

        strategy, job = Strategy(**take(Strategy)), take(TrainingJob)
        gpu, model = replace(GPU, **take(Gpu)), replace(MODEL, **take(ModelConfig))
        nodes = settings.pop("nodes", 4)
        assert not settings, f"no such setting: {settings}"
        cluster = replace(CLUSTER, groups=(NodeGroup(gpu=gpu, gpus_per_node=8, nodes=nodes),))
        return replace(JOB, **{"model": model, "cluster": cluster} | job), strategy

    return make
