"""A complete job file, and a way to run the command in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from predictor.cli.main import run

JOB = """\
model: {name: tiny, num_layers: 8, hidden_size: 1024, num_attention_heads: 16, vocab_size: 32000}
cluster:
  name: two-nodes
  groups:
    - nodes: 2
      gpus_per_node: 8
      gpu:
        {name: Test A100, architecture: ampere, sm_count: 108, boost_clock_hz: 1.41e9,
         l2_bytes: 40.0e6, memory_bytes: 80.0e9, usable_memory_bytes: 79.0e9,
         memory_bandwidth_bytes_per_s: 2.0e12, fp32_flops: 19.5e12, tf32_flops: 156.0e12,
         fp16_flops: 312.0e12, bf16_flops: 312.0e12}
  levels:
    - {name: nvlink, kind: nvlink-switch, span: 8, bandwidth_bytes_per_s: 300.0e9,
       latency_s: 1.0e-6}
    - {name: hdr, kind: infiniband, bandwidth_bytes_per_s: 25.0e9, latency_s: 5.0e-6}
seq_len: 2048
global_batch_size: 64
tp: 2
pp: 2
"""


class Result(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    """A job file that is right."""
    path = tmp_path / "job.yaml"
    path.write_text(JOB, encoding="utf-8")
    return path


@pytest.fixture
def predict_time(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Run the command and return exit code, standard output and standard error."""

    def call(*arguments: object) -> Result:
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call
