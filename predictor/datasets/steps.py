"""Reads a table of measured training steps into jobs and strategies."""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from predictor.datasets.cells import flag_of, integer_of, is_blank, text_of
from predictor.datasets.frameworks import before_megatron_fsdp, framework_of
from predictor.datasets.row import Reading, Row, may_be_read
from predictor.datasets.steps_machine import cluster_of, gpu_of
from predictor.datasets.steps_model import read_model
from predictor.datasets.steps_strategy import read_strategy
from predictor.datasets.tables import read_table, require_columns
from predictor.spec.cluster import Gpu
from predictor.spec.errors import InputError, Problem
from predictor.spec.job import TrainingJob
from predictor.spec.strategy import Strategy
from predictor.spec.vocabulary import Framework, Implementation

if TYPE_CHECKING:
    import pandas as pd

_LORA_RANK = re.compile(r"\br(?:ank)?\s*=?\s*(\d+)\b")
_TRAINED_KERNELS = frozenset({"megatron", "megatron-deepspeed", "nemo", "libai", "nanotron"})
_IMPLEMENTATIONS: tuple[str, ...] = get_args(Implementation)
DEFAULT_LORA_RANK = 16


@dataclass(frozen=True, slots=True)
class StepRows:
    """Rows that could be read, and why the others could not."""

    jobs: tuple[TrainingJob, ...]
    strategies: tuple[Strategy, ...]
    row_index: tuple[Any, ...]
    """Index labels in ``frame`` of the rows that were read, in order."""
    refused: tuple[tuple[Hashable, tuple[Problem, ...]], ...]
    """Index label of each refused row, with everything wrong with it."""
    assumed: tuple[dict[str, Any], ...]
    """Per row that was read: what no cell states."""
    frame: pd.DataFrame


def read_steps(source: str | Path | pd.DataFrame) -> StepRows:
    """Return the jobs and strategies of a steps table (CSV, parquet or a frame).

    Raises
    ------
    InputError
        When the table cannot be read at all.
    """
    frame = read_table(source)
    require_columns(frame, ("gpu", "num_gpus", "seq_len", "global_batch"), "training steps")
    jobs, strategies, index, refused, assumed = [], [], [], [], []
    columns = [name for name in map(str, frame.columns) if may_be_read(name)]
    for label, *values in frame[columns].itertuples(name=None):
        row = dict(zip(columns, values, strict=True))
        try:
            job, strategy, filled = read_row(row)
        except InputError as error:
            refused.append((label, error.problems))
            continue
        jobs.append(job)
        strategies.append(strategy)
        index.append(label)
        assumed.append(filled)
    return StepRows(tuple(jobs), tuple(strategies), tuple(index), tuple(refused), tuple(assumed),
                    frame)


def read_row(row: Row) -> tuple[TrainingJob, Strategy, dict[str, Any]]:
    """Return job, strategy and what was assumed of one row's configuration.

    Raises
    ------
    InputError
        Naming the field that is missing or not understood.
    """
    reading = Reading()
    blank = [column for column in ("gpu", "num_gpus", "seq_len", "global_batch")
             if is_blank(row.get(column))]
    if blank:
        raise reading.missing(*blank)
    num_gpus = _positive(row, "num_gpus")
    per_node = None if is_blank(row.get("gpus_per_node")) else _positive(row, "gpus_per_node")
    cluster = cluster_of(text_of(row["gpu"]), num_gpus, per_node,
                         text_of(row.get("interconnect_intra")),
                         text_of(row.get("interconnect_inter")))
    if is_blank(row.get("interconnect_inter")):
        reading.assume("interconnect_inter", cluster.name, "usual server of this GPU")
    framework = _framework(row, reading)
    model = read_model(row, reading, framework)
    strategy = read_strategy(row, gpu_of(text_of(row["gpu"])), num_gpus, framework, reading)
    workload, rank = _workload(row, reading)
    job = _job((
        ("model", model), ("cluster", cluster), ("seq_len", _positive(row, "seq_len")),
        ("global_batch_size", _positive(row, "global_batch")), ("framework", framework),
        ("attention_backend", _attention(row, framework, cluster.gpu, reading)),
        ("workload", workload), ("lora_rank", rank),
        ("implementation", _implementation(text_of(row.get("implementation"))))))
    return job, strategy, reading.assumed


@lru_cache(maxsize=16384)
def _job(fields: tuple[tuple[str, Any], ...]) -> TrainingJob:
    return TrainingJob(**dict(fields))


def _positive(row: Row, column: str) -> int:
    value = integer_of(row[column])
    if value is None or value < 1:
        raise InputError.of("positive", f"{column} must be a number above 0 and is "
                            f"{text_of(row[column])[:40]!r}", f"correct {column}", column)
    return value


def _framework(row: Row, reading: Reading) -> Framework:
    framework, recognised = framework_of(text_of(row.get("framework")))
    if not recognised:
        reading.assume("framework", framework, "not named")
    if framework == "megatron" and before_megatron_fsdp(
            text_of(row.get("framework_version")), text_of(row.get("zero_stage"))):
        framework = "megatron-deepspeed"
        reading.assume("framework", framework, "Megatron-LM had no ZeRO-2 or ZeRO-3 of its own")
    return framework


def _attention(row: Row, framework: str, gpu: Gpu, reading: Reading) -> str:
    """Flash where the row says so, or says nothing on hardware that has it."""
    text = text_of(row.get("flash_attention")).lower()
    stated = flag_of(text)
    unfused = "fused-softmax" if framework in _TRAINED_KERNELS else "eager"
    if stated is None and not text.startswith(("sdpa", "flash", "cudnn")):
        has_flash = gpu.architecture not in ("pascal", "volta", "turing")
        reading.assume("attention_backend", "flash" if has_flash else unfused, "blank")
        return "flash" if has_flash else unfused
    return unfused if stated is False else "flash"


def _implementation(text: str) -> str | None:
    """Return the implementation that a campaign names; the framework decides where none stands."""
    if text and text not in _IMPLEMENTATIONS:
        raise InputError.of("known-implementation", f"there is no implementation {text[:40]!r}",
                            f"choose from {', '.join(_IMPLEMENTATIONS)} or leave it blank",
                            "implementation")
    return text or None


def _workload(row: Row, reading: Reading) -> tuple[str, int]:
    text = text_of(row.get("workload")).lower()
    if text.startswith("lora"):
        found = _LORA_RANK.search(text_of(row.get("model_name")).lower())
        if found is None:
            reading.assume("lora_rank", DEFAULT_LORA_RANK, "not stated")
        return "lora", int(found.group(1)) if found else DEFAULT_LORA_RANK
    return ("sft" if text.startswith("sft") else "pretrain"), 0
