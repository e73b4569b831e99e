"""A prediction as the JSON document that other programs read (schema version 1)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from predictor.lowering.flops import CONVENTION
from predictor.lowering.tables import Dtype
from predictor.memory import CATEGORIES
from predictor.step.predict import StepPrediction

SCHEMA_VERSION = 1
PEAK_DTYPE = {"fp32": Dtype.FP32, "tf32": Dtype.TF32, "fp16": Dtype.FP16, "bf16": Dtype.BF16,
              "fp8": Dtype.FP8, "mxfp8": Dtype.FP8, "nvfp4": Dtype.FP4}


def document(
    prediction: StepPrediction, *, version: str, predictor: str = "analytic",
    calibration: str | None = None,
) -> dict[str, Any]:
    """Return the document of one prediction: plain numbers, strings, lists and mappings.

    ``predictor`` is the digest of the learned predictor whose times these are and ``calibration``
    that of what corrects them. Seconds, bytes and
    FLOP/s; ``low_s`` and ``high_s`` are null until an interval is calibrated.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "predict_time_version": version,
        "predictor": predictor,
        "calibration": calibration,
        "step_time_s": prediction.step_time_s,
        "low_s": _number(prediction.predictions.low_s[0]),
        "high_s": _number(prediction.predictions.high_s[0]),
        "interval_level": None,
        "provenance": str(prediction.predictions.provenance[0]),
        "breakdown": prediction.breakdown,
        "throughput": throughput(prediction),
        "memory": _memory(prediction),
        "input": _input(prediction),
    }


def throughput(prediction: StepPrediction) -> dict[str, Any]:
    """Return rates and utilisation. MFU counts what the model needs, HFU recomputation too; both
    divide by the dense peak of the strategy's precision."""
    job, seconds = prediction.job, prediction.step_time_s
    num_gpus = job.cluster.num_gpus
    tokens = job.global_batch_size * job.seq_len
    dtype = PEAK_DTYPE[prediction.strategy.precision]
    peak = float(prediction.batch.gpus.peak_flops[0, dtype])
    per_gpu = prediction.model_flops / seconds / num_gpus
    return {
        "tokens_per_s": tokens / seconds,
        "tokens_per_s_per_gpu": tokens / seconds / num_gpus,
        "samples_per_s": job.global_batch_size / seconds,
        "model_tflops_per_gpu": per_gpu / 1e12,
        "mfu": per_gpu / peak,
        "hfu": prediction.hardware_flops / seconds / num_gpus / peak,
        "peak_flops": peak,
        "peak_dtype": dtype.name.lower(),
        "flops_convention": CONVENTION,
    }


def _memory(prediction: StepPrediction) -> dict[str, Any]:
    table, found = prediction.memory, prediction.predictions
    ranks = [
        {"pp_rank": rank, **{name: float(table.categories[name][rank]) for name in CATEGORIES},
         "peak_bytes": float(table.allocated_bytes[rank]),
         "reserved_bytes": float(table.reserved_per_rank_bytes[rank]),
         "device_bytes": float(table.device_per_rank_bytes[rank])}
        for rank in range(prediction.strategy.pp)
    ]
    return {
        "peak_bytes": float(found.peak_bytes[0]),
        "reserved_bytes": float(found.reserved_bytes[0]),
        "device_bytes": float(found.device_bytes[0]),
        "capacity_bytes": float(found.capacity_bytes[0]),
        "verdict": prediction.verdict,
        "p_oom": None,
        "ranks": ranks,
    }


def _input(prediction: StepPrediction) -> dict[str, Any]:
    return {
        "model": asdict(prediction.job.model),
        "cluster": asdict(prediction.job.cluster),
        "strategy": asdict(prediction.strategy),
        "seq_len": prediction.job.seq_len,
        "global_batch_size": prediction.job.global_batch_size,
        "num_microbatches": int(prediction.batch.num_microbatches[0]),
        "job": {name: value for name, value in asdict(prediction.job).items()
                if name not in ("model", "cluster")},
        "assumed": {**prediction.assumed, **_split(prediction), **_routing(prediction)},
        "ignored": _ignored(prediction),
    }


def _ignored(prediction: StepPrediction) -> dict[str, Any]:
    """Fields that were set but have no effect here, with the reason."""
    job, strategy = prediction.job, prediction.strategy
    without = (
        ("lora_rank", job.lora_rank > 0 and job.workload != "lora", "workload is not lora"),
        ("moe_load_imbalance", job.moe_load_imbalance > 1 and job.model.num_experts == 0,
         "the model has no experts"),
        ("moe_load_imbalance", job.moe_load_imbalance > 1 and strategy.ep == 1, "ep is 1"),
        ("moe_dispatcher", strategy.moe_dispatcher != "alltoall" and strategy.ep == 1, "ep is 1"),
        ("ep_overlap", strategy.ep_overlap and strategy.ep == 1, "ep is 1"),
        ("packed_seq_len", (job.packed_seq_len or 0) >= job.seq_len,
         "documents are no shorter than seq_len"),
        ("encoder_seq_len", job.encoder_seq_len is not None and job.model.num_encoder_layers == 0,
         "the model has no encoder"),
        ("cp_comm_type", strategy.cp_comm_type != "p2p" and strategy.cp == 1, "cp is 1"),
        ("recompute_modules", bool(strategy.recompute_modules)
         and strategy.recompute != "selective", "recompute is not selective"),
        ("recompute_num_layers", strategy.recompute_num_layers is not None
         and strategy.recompute != "full", "recompute is not full"),
        ("reshard_after_forward", not strategy.reshard_after_forward and strategy.zero_stage < 3,
         "zero_stage is below 3"),
    )
    return {name: why for name, applies, why in without if applies}


def _split(prediction: StepPrediction) -> dict[str, Any]:
    """The layers of every pipeline rank, summed over its chunks."""
    if prediction.strategy.pp == 1:
        return {}
    stages = prediction.times.stages
    layers = np.bincount(stages.rank, weights=stages.counts[:, 0]).astype(int).tolist()
    given = prediction.strategy.pipeline_layout
    source = "pipeline_layout" if given else "split over stages (docs/predictions.md)"
    return {"layers_per_pp_rank": {"value": layers, "source": source}}


def _routing(prediction: StepPrediction) -> dict[str, Any]:
    if prediction.job.model.num_experts == 0:
        return {}
    value = prediction.job.moe_load_imbalance
    return {"moe_routing": {
        "value": f"busiest expert rank gets {value:g} x the mean; no tokens dropped",
        "source": "moe_load_imbalance"}}


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
