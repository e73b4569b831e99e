"""JSON Schemas of the documents that ``--json`` prints: ``python -m predictor.report.schemas``.

They are the contract with other programs; a key is renamed only with a new ``schema_version``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, with_config
from typing_extensions import TypedDict

from predictor.spec.job import TrainingJob
from predictor.spec.model import ModelConfig
from predictor.spec.strategy import Strategy

CLOSED = ConfigDict(extra="forbid")


@with_config(CLOSED)
class Breakdown(TypedDict):
    """Exposed seconds by cause; they sum to ``step_time_s``."""

    compute_s: float
    tp_s: float
    cp_s: float
    ep_s: float
    pp_s: float
    dp_s: float
    bubble_s: float
    optimizer_s: float
    overhead_s: float


@with_config(CLOSED)
class Throughput(TypedDict):
    """Rates of the whole job and of one GPU."""

    tokens_per_s: float
    tokens_per_s_per_gpu: float
    samples_per_s: float
    model_tflops_per_gpu: float
    mfu: float
    hfu: float
    peak_flops: float
    peak_dtype: str
    flops_convention: str


@with_config(CLOSED)
class RankMemory(TypedDict):
    """Bytes on one pipeline rank."""

    pp_rank: int
    parameters_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    working_bytes: float
    buffers_bytes: float
    peak_bytes: float
    reserved_bytes: float
    device_bytes: float


@with_config(CLOSED)
class Memory(TypedDict):
    """Bytes on the fullest rank, and on every one."""

    peak_bytes: float
    reserved_bytes: float
    device_bytes: float
    capacity_bytes: float
    verdict: str
    p_oom: float | None
    ranks: list[RankMemory]


@with_config(CLOSED)
class StepInput(TypedDict):
    """What was predicted, with everything that was filled in."""

    model: dict[str, Any]
    cluster: dict[str, Any]
    strategy: dict[str, Any]
    seq_len: int
    global_batch_size: int
    num_microbatches: int
    job: dict[str, Any]
    assumed: dict[str, Any]
    ignored: dict[str, Any]


@with_config(CLOSED)
class StepDocument(TypedDict):
    """What ``predict-time step --json`` prints."""

    schema_version: int
    predict_time_version: str
    predictor: str
    calibration: str | None
    step_time_s: float
    low_s: float | None
    high_s: float | None
    interval_level: float | None
    provenance: str
    breakdown: Breakdown
    throughput: Throughput
    memory: Memory
    input: StepInput


@with_config(CLOSED)
class GroupErrors(TypedDict):
    """Errors of one group, in percent."""

    rows: int
    mape: float | None
    median_ape: float | None
    bias: float | None
    max_ape: float | None


@with_config(CLOSED)
class EvaluateDocument(TypedDict):
    """What ``predict-time evaluate --json`` prints; errors, coverage and regrets in percent."""

    schema_version: int
    predict_time_version: str
    predictor: str
    calibration: str | None
    quantity: str
    where: str | None
    group_by: str | None
    rows: int
    predicted: int
    refused: list[dict[str, str]]
    refused_by_kind: dict[str, int]
    assumed: dict[str, int]
    n_untimed: int
    scored: int
    mape: float | None
    mape_group_mean: float | None
    median_ape: float | None
    bias: float | None
    max_ape: float | None
    interval_coverage: float | None
    interval_half_width: float | None
    by_group: dict[str, GroupErrors]
    in_sample_rows: int
    out_of_memory: dict[str, int]
    ranking: dict[str, Any]
    seconds: float
    rows_per_second: float | None


SCHEMAS: dict[str, Any] = {
    "step": StepDocument, "evaluate": EvaluateDocument, "training-job": TrainingJob,
    "model": ModelConfig, "strategy": Strategy,
}
"""What is published, by file name."""


def schema(name: str) -> str:
    """Return the JSON Schema ``name`` as the text of its file."""
    made = TypeAdapter(SCHEMAS[name]).json_schema()
    return json.dumps(made, indent=1, sort_keys=True) + "\n"


def write(folder: Path) -> None:
    """Write every schema into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in SCHEMAS:
        (folder / f"{name}.schema.json").write_text(schema(name), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
