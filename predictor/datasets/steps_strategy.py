"""The strategy of a row of a steps table."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, get_args

from predictor.datasets.cells import (
    Cell, flag_of, integer_of, number_of, parse_cell, text_of,
)
from predictor.datasets.row import Reading, Row
from predictor.spec.cluster import Gpu
from predictor.spec.errors import InputError
from predictor.spec.strategy import Strategy
from predictor.spec.vocabulary import (
    Framework, MoeDispatcher, Precision, RecomputeModule, Schedule,
)

_PRECISIONS: tuple[str, ...] = get_args(Precision)
_MODULES: tuple[str, ...] = get_args(RecomputeModule)
_SCHEDULES: tuple[str, ...] = get_args(Schedule)
_DISPATCHERS: tuple[str, ...] = get_args(MoeDispatcher)
_DISTRIBUTED_OPTIMIZER = frozenset({"megatron", "nemo"})
"""Frameworks that refuse to overlap parameter gathers without a sharded optimizer."""
_USUAL_STAGE: dict[str, tuple[int, str]] = {
    "nemo": (1, "NeMo and Megatron-Bridge recipes use the distributed optimizer"),
    "torchtitan": (3, "torchtitan shards with FSDP2 by default"),
    "llm-foundry": (3, "llm-foundry's configurations use FSDP FULL_SHARD"),
}
_USUAL_RECOMPUTE = {"maxtext": ("full", "remat_policy: full in MaxText configs/base.yml")}
_LAYERS = re.compile(r"(\d+)\s*layers")
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_OFFLOADED = re.compile(r"cpu_offloading_num_layers\s*=\s*(\d+)")


def read_strategy(
    row: Row, gpu: Gpu, num_gpus: int, framework: Framework, reading: Reading
) -> Strategy:
    """Return the strategy that the row's columns describe, open where they say nothing."""
    fields: dict[str, Any] = {}
    for name in ("tp", "pp", "cp", "ep"):
        degree = integer_of(row.get(name))
        if degree is None:
            reading.assume(name, 1, "blank")
        fields[name] = degree or 1
    dp = max(1, num_gpus // (fields["tp"] * fields["pp"] * fields["cp"]))
    fields["dp"] = _stated_dp(row, fields, num_gpus)
    fields["micro_batch_size"] = _micro_batch(row, dp, reading)
    fields |= _pipeline(row, fields, dp, framework, reading)
    fields["sequence_parallel"] = _sequence_parallel(row, fields["tp"])
    fields |= _precision(text_of(row.get("precision")), gpu, reading)
    if framework == "nemo" and fields["precision"] in ("fp8", "mxfp8", "nvfp4"):
        fields["fp8_param_gather"] = True
        reading.assume("fp8_param_gather", True, "fp8_params in NeMo's performance recipes")
    fields |= _recompute(text_of(row.get("recompute")), framework, reading)
    fields |= _overlap(text_of(row.get("overlap")))
    gathers = bool(fields.get("overlap_param_gather"))
    fields |= _sharding(row, dp * fields["cp"], framework, gathers, reading)
    fields |= _offload(row)
    return _strategy(tuple(sorted(fields.items())))


@lru_cache(maxsize=16384)
def _strategy(fields: tuple[tuple[str, Any], ...]) -> Strategy:
    return Strategy(**dict(fields))


def _micro_batch(row: Row, dp: int, reading: Reading) -> int:
    size = integer_of(row.get("micro_batch"))
    if size:
        return size
    batch, steps = integer_of(row.get("global_batch")), integer_of(row.get("grad_accum"))
    derived = max(1, batch // (dp * steps)) if batch and steps else 1
    reading.assume("micro_batch_size", derived, "global_batch / (dp x grad_accum), else 1")
    return derived


def _stated_dp(row: Row, degrees: dict[str, Any], num_gpus: int) -> int | None:
    """The data-parallel degree, which must agree with the GPUs and the other degrees."""
    stated = integer_of(row.get("dp"))
    product = degrees["tp"] * degrees["pp"] * degrees["cp"]
    if stated is not None and stated * product != num_gpus:
        raise InputError.of(
            "dp-agrees", f"dp {stated} x tp x pp x cp is {stated * product} but num_gpus is "
            f"{num_gpus}", "correct dp or leave it blank", "dp")
    return stated


def _pipeline(
    row: Row, degrees: dict[str, Any], dp: int, framework: Framework, reading: Reading
) -> dict[str, Any]:
    """Schedule and chunks; chunks that no cell states are the framework's usual ones."""
    cell = parse_cell(text_of(row.get("schedule")))
    stated = next((name for name in _SCHEDULES if cell.word.startswith(name)), None)
    if degrees["pp"] == 1:
        return {"vpp": 1, "schedule": None}
    chunks = integer_of(row.get("vpp"))
    if chunks is None:
        chunks, why = _usual_chunks(row, degrees, dp, stated, framework)
        reading.assume("vpp", chunks, why)
    if stated is None or stated in ("1f1b", "interleaved-1f1b"):
        return {"vpp": chunks, "schedule": "interleaved-1f1b" if chunks > 1 else "1f1b"}
    return {"vpp": chunks, "schedule": stated}


def _usual_chunks(
    row: Row, degrees: dict[str, Any], dp: int, stated: str | None, framework: Framework
) -> tuple[int, str]:
    """Chunks per rank where the column is blank, and why."""
    layers, pp = integer_of(row.get("num_layers")) or degrees["pp"], degrees["pp"]
    batch = integer_of(row.get("global_batch")) or 0
    rounds = batch // (dp * degrees["micro_batch_size"])
    per_rank = layers // pp if layers % pp == 0 else 1
    plain = stated in (None, "1f1b")
    if plain and framework == "nemo" and rounds and rounds % pp == 0 and per_rank > 1:
        return per_rank, "one layer per chunk: NeMo recipes gpt3_175b and nemotron4_340b"
    if stated != "interleaved-1f1b":
        return 1, "no interleaving stated"
    if framework == "torchtitan":
        return 2, "torchtitan distributed/pipeline_parallel.py: two stages per rank"
    smallest = next((size for size in range(2, per_rank + 1) if per_rank % size == 0), 1)
    return smallest, "smallest degree that divides the layers of a rank"


def _sequence_parallel(row: Row, tp: int) -> bool | None:
    stated = flag_of(row.get("sp"))
    if stated is None:
        return None
    return stated and tp > 1


def _sharding(
    row: Row, replicas: int, framework: Framework, gathers: bool, reading: Reading
) -> dict[str, Any]:
    """ZeRO stage by number, ``2/3`` as FSDP that keeps parameters; ``fsdp`` as flag or size."""
    word = parse_cell(text_of(row.get("zero_stage"))).word
    stages = [min(int(digit), 3) for digit in re.findall(r"\d", word)]
    group = integer_of(row.get("fsdp")) or 0
    if group:
        stage = 3
    elif stages:
        stage = max(stages)
    else:
        stage, why = _USUAL_STAGE.get(framework, (0, "blank"))
        reading.assume("zero_stage", stage, why)
    if stage == 0 and gathers and framework in _DISTRIBUTED_OPTIMIZER:
        stage = 1
        reading.assume("zero_stage", stage, "overlapped parameter gathers need the distributed "
                       "optimizer (Megatron-LM megatron/training/arguments.py)")
    fields: dict[str, Any] = {"zero_stage": stage}
    if len(stages) > 1:
        fields["reshard_after_forward"] = False
    if 1 < group < replicas and replicas % group == 0:
        fields["dp_shard"] = group
    return fields


def _precision(text: str, gpu: Gpu, reading: Reading) -> dict[str, Any]:
    if not text:
        reading.assume("precision", "bf16", "blank")
        return {"precision": "bf16"}
    cell = parse_cell(text)
    if any("not stated" in qualifier for qualifier in cell.qualifiers):
        reading.assume("precision", text, "not stated")
    head, _, tail = cell.word.replace(" ", "-").partition("-")
    head = head.split("/", 1)[0]
    words = {head, *tail.split("-"), *cell.qualifiers}
    fields: dict[str, Any] = {"precision": head if head in _PRECISIONS else "bf16"}
    if head == "fp8":
        fields |= _fp8_recipe(words, gpu)
    if any("all-gather" in word for word in words):
        fields["fp8_param_gather"] = True
    accumulation = next((word for word in cell.qualifiers if word.startswith("grad acc")), "")
    if "fp32" in accumulation:
        fields["grad_reduce_dtype"] = "fp32"
    return fields


def _fp8_recipe(words: set[str], gpu: Gpu) -> dict[str, Any]:
    """Scaling kinds by their usual tags: cs and tensorwise (current), mx, rowwise, blockwise."""
    if "mx" in words:
        return {"precision": "mxfp8"} if gpu.fp4_flops > 0 else {"fp8_recipe": "blockwise"}
    if words & {"cs", "tensorwise", "linear"}:
        return {"fp8_recipe": "current"}
    if "rowwise" in words:
        return {"fp8_recipe": "rowwise"}
    if words & {"blockwise", "subchannel", "sc"}:
        return {"fp8_recipe": "blockwise"}
    return {}


def _recompute(text: str, framework: Framework, reading: Reading) -> dict[str, Any]:
    if not text:
        usual, why = _USUAL_RECOMPUTE.get(framework, ("none", "blank"))
        reading.assume("recompute", usual, why)
        return {"recompute": usual}
    cell = parse_cell(text)
    if cell.word.startswith("full"):
        return {"recompute": "full", "recompute_num_layers": _recomputed_layers(cell)}
    if cell.word.startswith("sel"):
        return {"recompute": "selective", "recompute_modules": _modules(cell)}
    return {"recompute": "none"}


def _recomputed_layers(cell: Cell) -> int | None:
    given = cell.option("num_layers")
    match = next((found for found in map(_LAYERS.search, cell.qualifiers) if found), None)
    return integer_of(given) if given else int(match.group(1)) if match else None


def _modules(cell: Cell) -> tuple[str, ...]:
    """Named modules; per-operator selection keeps products and repeats what lies between them."""
    named = (cell.option("modules") or "").split(",")
    if any("per-op" in qualifier for qualifier in cell.qualifiers):
        return ("layernorm", "mlp")
    return tuple(sorted({name.strip() for name in named} & set(_MODULES)))


def _overlap(text: str) -> dict[str, Any]:
    """A list of switches: what is named is on, ``=false`` is off, ``none`` turns all off."""
    lowered = text.lower().replace("-", "_")
    if not lowered:
        return {}
    if lowered.startswith("none"):
        return {"overlap_grad_reduce": False, "overlap_param_gather": False}
    fields: dict[str, Any] = {}
    everything = "dp/tp/pp" in lowered
    for names, field in (
        (("overlap_grad",), "overlap_grad_reduce"),
        (("overlap_param",), "overlap_param_gather"),
        (("overlap_p2p",), "overlap_p2p"),
        (("tp_comm_overlap", "async_tp"), "tp_comm_overlap"),
        (("moe_a2a_overlap",), "ep_overlap"),
    ):
        at = next((lowered.find(name) for name in names if name in lowered), -1)
        if at >= 0:
            fields[field] = not re.match(r"\w*\s*=\s*(false|0|no)", lowered[at:])
        elif everything and field != "ep_overlap":
            fields[field] = True
    fields |= _graphs(lowered)
    dispatcher = re.search(r"dispatcher=([\w-]+)", lowered)
    if dispatcher and dispatcher.group(1) in _DISPATCHERS:
        fields["moe_dispatcher"] = dispatcher.group(1)
    return fields


def _graphs(lowered: str) -> dict[str, Any]:
    """CUDA graphs of whole iterations or layers are full, of named modules partial."""
    found = re.search(r"cuda_graph(?:=([\w]+))?(/\[?[^\s,]*)?", lowered)
    if found is None or (found.group(1) == "none"):
        return {}
    modules = (found.group(2) or "").startswith("/[")
    return {"cuda_graphs": "partial" if modules else "full"}


def _offload(row: Row) -> dict[str, float]:
    """``activation cpu_offloading_num_layers=40``, ``cpu``, ``0.5`` or ``optimizer (50 %)``."""
    text = text_of(row.get("optimizer_offload")).lower()
    layers, found = integer_of(row.get("num_layers")), _OFFLOADED.search(text)
    if found is not None:
        return {"activation_offload": min(1.0, int(found.group(1)) / layers) if layers else 1.0}
    if not text or flag_of(text) is False:
        return {}
    percent = _PERCENT.search(text)
    number = float(percent.group(1)) / 100 if percent else number_of(text)
    share = 1.0 if number is None else min(1.0, max(0.0, number))
    return {"activation_offload" if text.startswith("activation") else "optimizer_offload": share}
