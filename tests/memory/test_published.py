"""Published peaks of whole runs, predicted from their configuration."""

from __future__ import annotations

from dataclasses import replace

import pytest

from predictor.catalog import load_cluster, load_model
from predictor.spec.job import TrainingJob
from predictor.spec.strategy import Strategy
from predictor.step.predict import predict_step

LLAMA_70B = replace(load_model("llama-3-70b"), num_layers=12)
LLAMA_405B = replace(load_model("llama-3.1-405b"), num_layers=4)


@pytest.mark.parametrize(("model", "tp", "pp", "cp", "batch", "seq_len", "gib"), [
    (LLAMA_70B, 1, 2, 1, 16, 4096, 66.55), (LLAMA_70B, 2, 1, 1, 32, 4096, 60.68),
    (LLAMA_70B, 4, 1, 1, 8, 4096, 39.07), (LLAMA_70B, 8, 1, 1, 8, 4096, 28.29),
    (LLAMA_405B, 1, 2, 1, 16, 4096, 87.08), (LLAMA_405B, 2, 1, 1, 32, 4096, 81.59),
    (LLAMA_405B, 4, 1, 1, 8, 4096, 52.89), (LLAMA_405B, 1, 1, 8, 4, 32768, 139.22)])
def test_megatron_on_eight_b200(model, tp, pp, cp, batch, seq_len, gib):
    """max_memory_allocated of cut Llama models: MooreThreads/SimuMax, docs/b200,
    b200_release_v1.2_summary.json."""
    job = TrainingJob(model=model, cluster=load_cluster("dgx-b200"), seq_len=seq_len,
                      global_batch_size=batch)
    strategy = Strategy(tp=tp, pp=pp, cp=cp, sequence_parallel=tp > 1, zero_stage=1,
                        precision="bf16")
    found = predict_step(job, strategy).predictions
    assert found.peak_bytes[0] / 2**30 == pytest.approx(gib, rel=0.03)


@pytest.mark.parametrize(("cp", "seq_len", "gib"), [
    (1, 32768, 75.3), (2, 65536, 75.9), (4, 131072, 77.1), (8, 262144, 84.9)])
def test_torchtitan_pipelines_of_llama_405b(cp, seq_len, gib):
    """Reserved memory on 512 H100: pytorch/torchtitan, benchmarks/
    llama3_h100_202412_torchtitan.md, table 6 (local batch 8, one sample per micro-batch)."""
    job = TrainingJob(model=load_model("llama-3.1-405b"), cluster=load_cluster("dgx-h100", 64),
                      seq_len=seq_len, global_batch_size=64 // cp, framework="torchtitan")
    strategy = Strategy(tp=8, pp=8, cp=cp, zero_stage=3, recompute="full", precision="bf16")
    found = predict_step(job, strategy).predictions
    assert found.reserved_bytes[0] / 2**30 == pytest.approx(gib, rel=0.1)
