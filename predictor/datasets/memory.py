"""Reads a table of measured peak memory into jobs and strategies."""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from predictor.datasets.cells import integer_of, is_blank, number_of, text_of
from predictor.datasets.row import Row, configuration
from predictor.datasets.steps import read_row
from predictor.datasets.steps_model import preset
from predictor.datasets.tables import read_table, require_columns
from predictor.spec.errors import InputError, Problem
from predictor.spec.job import TrainingJob
from predictor.spec.strategy import Strategy
from predictor.spec.vocabulary import RecomputeModule

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = {
    "layers": "num_layers", "heads": "num_heads", "kv_heads": "num_kv_heads", "seq": "seq_len",
    "mbs": "micro_batch", "gbs": "global_batch", "model": "model_name", "ffn": "ffn_hidden",
}
"""What the memory table calls columns of the steps table."""
UNIT_BYTES = {"gib": 2.0**30, "gb": 2.0**30, "mib": 2.0**20, "mb": 2.0**20}
"""Sources that write GB and MB print what torch and nvidia-smi count in powers of two."""
TOKENIZERS = {
    "bertwordpiececase": 28996, "bertwordpiecelowercase": 30522, "gpt2bpetokenizer": 50257,
    "llama2tokenizer": 32000, "gptsentencepiecetokenizer": 256000,
}
"""Vocabulary of the tokenizers that Megatron-LM names instead of a size."""
DEFAULT_VOCAB = 50257
"""GPT-2's, which Megatron-LM's scripts use where no tokenizer is named."""
_SHARDING = ((3, ("full_shard", "full shard", "zero-3", "optim_grads_params")),
             (2, ("shard_grad_op", "zero-2")), (1, ("zero-1", "distributed optimizer")))
_MODULES: tuple[str, ...] = get_args(RecomputeModule)
_IMAGES = ("multimodal", "llava", "vlm")
_TESTS_SEQ_LEN = 1024
_LAYERS_PER_CHUNK = re.compile(r"layers/stage (\d+)")
_GPT_LIKE = ("gpt", "bert", "t5", "bloom", "mpt", "megatron", "turing")


@dataclass(frozen=True, slots=True)
class MemoryRows:
    """Rows that could be read, and why the others could not."""

    jobs: tuple[TrainingJob, ...]
    strategies: tuple[Strategy, ...]
    row_index: tuple[Any, ...]
    measured_bytes: tuple[float, ...]
    mem_kind: tuple[str, ...]
    """``allocated``, ``reserved`` or ``device``; never compare across kinds."""
    last_rank: tuple[bool, ...]
    """Whether the figure is the last pipeline rank's, not the peak rank's."""
    refused: tuple[tuple[Hashable, tuple[Problem, ...]], ...]
    frame: pd.DataFrame


def read_memory(source: str | Path | pd.DataFrame) -> MemoryRows:
    """Return the rows of a measured-memory table.

    Raises
    ------
    InputError
        When the table cannot be read at all.
    """
    frame = read_table(source)
    require_columns(frame, ("measured_peak", "unit", "mem_kind", "gpu"), "measured memory")
    kept: list[tuple[Any, ...]] = []
    refused = []
    names = [str(name) for name in frame.columns]
    for label, values in zip(frame.index, zip(*(frame[name] for name in frame.columns),
                                              strict=True), strict=True):
        row = dict(zip(names, values, strict=True))
        try:
            kind, size = measured(row)
            job, strategy = _read(as_steps_row(row))
        except InputError as error:
            refused.append((label, error.problems))
            continue
        last = text_of(row.get("which_rank")).lower().startswith("last")
        kept.append((job, strategy, label, size, kind, last))
    jobs, strategies, labels, sizes, kinds, last_rank = (
        zip(*kept, strict=True) if kept else ((),) * 6)
    return MemoryRows(
        jobs=tuple(jobs), strategies=tuple(strategies), row_index=tuple(labels),
        measured_bytes=tuple(sizes), mem_kind=tuple(kinds), last_rank=tuple(last_rank),
        refused=tuple(refused), frame=frame)


def _read(named: Row) -> tuple[TrainingJob, Strategy]:
    job, strategy, _ = read_row(named)
    if job.framework == "megatron-deepspeed" and strategy.precision == "bf16" \
            and "bf16optimizer" not in text_of(named.get("precision")).lower():
        # DeepSpeed's ZeRO optimizer accumulates in the type of the model unless
        # data_types.grad_accum_dtype says otherwise; its BF16_Optimizer does in fp32.
        strategy = replace(strategy, grad_reduce_dtype="bf16")
    return job, strategy


def measured(row: Row) -> tuple[str, float]:
    """Return the kind of a row's figure and its bytes.

    Raises
    ------
    InputError
        When the row holds no figure of a kind that is predicted.
    """
    kind = text_of(row.get("mem_kind")).lower()
    known = next((name for name in ("allocated", "reserved", "device") if kind.startswith(name)
                  or f"max {name}" in kind), None)
    size, unit = number_of(row.get("measured_peak")), text_of(row.get("unit")).lower()
    if known is None:
        raise InputError.of("memory-kind", f"mem_kind {kind!r} is not a measured peak",
                            "give allocated, reserved or device", "mem_kind")
    if size is None or unit not in UNIT_BYTES:
        raise InputError.of("memory-figure", "the row holds no peak with a unit",
                            "give measured_peak and unit", "measured_peak")
    return known, size * UNIT_BYTES[unit]


def as_steps_row(row: Row) -> Row:
    """Return the row under the column names of a steps table."""
    named = {COLUMNS.get(name, name): value for name, value in configuration(row).items()}
    name = text_of(row.get("model")).lower()
    plain = name.rsplit("/", 1)[-1]
    named["arch"] = "bert" if plain.startswith("bert") else \
        "gpt" if plain.startswith(_GPT_LIKE) else "llama"
    named["model_name"] = name.split(" ", 1)[0]
    named["zero_stage"] = _zero_stage(text_of(row.get("sharding")).lower())
    named["vocab"] = _vocab(row)
    named["vpp"] = _chunks(named)
    named["recompute"] = _recompute(text_of(row.get("recompute")))
    named["flash_attention"] = row.get("flash_attention", _attention(row))
    if "torchtitan" in text_of(row.get("framework")) and (integer_of(named.get("pp")) or 1) > 1:
        # The batch in the table is a replica's; its pipeline cuts it into single samples
        # (pipeline_parallel_microbatch_size in torchtitan config/job_config.py).
        named["global_batch"] = named.get("global_batch") or _one_batch(named)
        named["micro_batch"] = 1
    _refuse_images(name)
    if not is_blank(row.get("moe")):
        named |= _experts(text_of(row.get("moe")), named)
    if is_blank(named.get("global_batch")):
        named["global_batch"] = _one_batch(named)
    return named


def _recompute(text: str) -> str:
    """Modules that follow ``selective`` in any notation, in the notation of steps tables."""
    words = set(re.findall(r"\w+", text.lower()))
    modules = [module for module in _MODULES if module in words]
    return f"selective(modules={','.join(modules)})" if "selective" in words and modules else text


def _attention(row: Row) -> str | None:
    """No flash attention in Megatron-LM's functional tests, which are short and deterministic.

    Deterministic mode excludes it (Megatron-LM training/arguments.py). Its release tests are
    longer and leave the choice to Transformer Engine.
    """
    tests = re.search(r"\bCI\b", text_of(row.get("framework"))) is not None
    short = (integer_of(row.get("seq")) or 0) <= _TESTS_SEQ_LEN
    return "no" if tests and short else None


def _refuse_images(name: str) -> None:
    """Raise InputError for models that see images: no column describes their encoder."""
    if any(word in name for word in _IMAGES):
        raise InputError.of("image-encoder", f"{name[:40]!r} has an image encoder, which no column "
                            "describes", "leave the row out", "model")


def _zero_stage(text: str) -> int | None:
    """None where the table does not say, for the framework's usual stage."""
    if not text:
        return None
    return next((stage for stage, words in _SHARDING if any(word in text for word in words)), 0)


def _chunks(named: Row) -> Any:
    """Chunks per pipeline rank, which Megatron-LM's arguments give as layers per chunk."""
    match = _LAYERS_PER_CHUNK.match(text_of(named.get("vpp")))
    layers, pp = integer_of(named.get("num_layers")), integer_of(named.get("pp"))
    if match is None or not layers or not pp:
        return named.get("vpp")
    return max(1, layers // (pp * int(match.group(1))))


def _vocab(row: Row) -> int | None:
    text = text_of(row.get("vocab")).lower()
    if text in TOKENIZERS:
        return TOKENIZERS[text]
    number = number_of(text)
    if number is not None:
        return int(number * 1000) if re.match(r"\d+k", text) else int(number)
    megatron = "megatron" in text_of(row.get("framework")).lower()
    if megatron and not text and text_of(row.get("model")).lower().startswith("bert"):
        return TOKENIZERS["bertwordpiecelowercase"]
    return DEFAULT_VOCAB if megatron and not text else None


def _experts(text: str, named: Row) -> dict[str, Any]:
    """Experts as ``160 experts top6 moe_ffn1536 shared3072 MLA(q1536,kv512) 1 dense layer``."""
    found: dict[str, Any] = {"arch": "moe"}
    for column, pattern in (("num_experts", r"(\d+) experts"), ("topk", r"top(\d+)"),
                            ("ffn_hidden", r"moe_ffn(\d+)"), ("moe_shared_ffn", r"shared(\d+)"),
                            ("dense_layers", r"(\d+) dense")):
        match = re.search(pattern, text.lower())
        if match:
            found[column] = int(match.group(1))
    if "ffn_hidden" in found:
        found["dense_ffn"] = named.get("ffn_hidden")
    known = preset(text_of(named.get("model_name")))
    if "mla" in text.lower() and known is not None and known.kv_lora_rank:
        found["attn_kind"] = (f"mla(q{known.q_lora_rank},kv{known.kv_lora_rank},"
                              f"nope{known.qk_nope_head_dim},rope{known.qk_rope_head_dim},"
                              f"v{known.v_head_dim})")
    return found


def _one_batch(named: Row) -> int | None:
    """One micro-batch per replica and stage, where the table leaves the batch open."""
    gpus, size = integer_of(named.get("num_gpus")), integer_of(named.get("micro_batch"))
    degrees = [integer_of(named.get(name)) or 1 for name in ("tp", "pp", "cp")]
    if gpus is None or size is None:
        return None
    return size * max(1, gpus // (degrees[0] * degrees[1] * degrees[2])) * degrees[1]
