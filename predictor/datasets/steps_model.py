"""The model of a row of a steps table."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import Any

from predictor.catalog import load_model
from predictor.catalog.names import find
from predictor.datasets.cells import flag_of, integer_of, text_of
from predictor.datasets.row import Reading, Row
from predictor.spec.errors import InputError
from predictor.spec.model import ModelConfig

_MLA = re.compile(r"mla\(q(\d+),kv(\d+),nope(\d+),rope(\d+),v(\d+)\)")
_MLA_FIELDS = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_NEEDED = (("num_layers", "num_layers"), ("hidden", "hidden_size"),
           ("num_heads", "num_attention_heads"), ("vocab", "vocab_size"))
_GPT_FAMILY = frozenset({"gpt", "bert", "t5"})
_HYBRID = ("hybrid", "mamba")
_UNWRITTEN = (
    "normalization", "position_embedding", "add_bias_linear", "parallel_residual",
    "sliding_window", "full_attention_interval", "moe_layer_interval", "moe_latent_size")
"""Structure that no column of the table carries."""
_VOCAB = {"bert": 30522, "gpt": 50257, "moe": 50257}
"""Sizes of BERT's and GPT-2's vocabularies, which Megatron-LM's tokenizers
BertWordPieceLowerCase and GPT2BPETokenizer read (megatron/training/arguments.py)."""
_MEGATRON = frozenset({"megatron", "megatron-deepspeed"})
_WITH_MTP = frozenset({"nemo"})
"""Frameworks whose recipes train a model's multi-token-prediction blocks (Megatron-Bridge
recipes/deepseek/deepseek_v3.py); Megatron-LM leaves them out unless told otherwise."""


def read_model(row: Row, reading: Reading, framework: str) -> ModelConfig:
    """Return the model that the row's columns describe.

    Columns come first; what they leave open comes from the catalogue's model of that name, then
    from what the architecture usually does.
    """
    known = preset(text_of(row.get("model_name")))
    arch = text_of(row.get("arch")).lower()
    needed = _needed(row, arch, known, framework, reading)
    hybrid = any(word in arch for word in _HYBRID) or (known is not None and known.layer_pattern)
    if hybrid:
        return _hybrid(known, needed, reading)
    fields = {"name": text_of(row.get("model_name")) or "custom", **needed}
    fields |= _dense(row, known) | _latent(row, known, reading)
    if (integer_of(row.get("num_experts")) or 0) > 0:
        fields |= _experts(row, known, reading)
    fields |= _architecture(arch, row, reading)
    fields |= _unwritten(needed, known, framework, reading)
    if fields["position_embedding"] == "learned":
        fields["max_position_embeddings"] = integer_of(row.get("seq_len")) or 0
    return _model(tuple(sorted(fields.items())))


@lru_cache(maxsize=8192)
def _model(fields: tuple[tuple[str, Any], ...]) -> ModelConfig:
    return ModelConfig(**dict(fields))


@lru_cache(maxsize=4096)
def preset(name: str) -> ModelConfig | None:
    """Return the catalogue's model for a name as tables write it, None when it has none."""
    plain = re.sub(r"\s*\(.*", "", name).strip().rsplit("/", 1)[-1]
    for spelling in (plain, re.sub(r"(?<=[a-z])(?=\d)", "-", plain.lower(), count=1)):
        found = find("models", spelling)  # never a file: a cell is not a path
        if found is not None:
            return load_model(found)
    return None


def _needed(
    row: Row, arch: str, known: ModelConfig | None, framework: str, reading: Reading
) -> dict[str, Any]:
    """The four sizes that every model has; all that are missing are reported together."""
    found: dict[str, Any] = {}
    missing = []
    for column, field in _NEEDED:
        value = integer_of(row.get(column))
        if value is None and known is not None:
            value = getattr(known, field)
            reading.assume(field, value, f"catalogue: {known.name}")
        elif value is None and column == "vocab" and framework in _MEGATRON and arch in _VOCAB:
            value = _VOCAB[arch]
            reading.assume(field, value, "Megatron-LM's usual tokenizer")
        if value is None:
            missing.append(column)
        found[field] = value
    if missing:
        raise reading.missing(*missing)
    return found


def _hybrid(
    known: ModelConfig | None, needed: dict[str, Any], reading: Reading
) -> ModelConfig:
    """A hybrid's pattern of layers stands in no column: the catalogue has it or nobody has."""
    if known is None or not known.layer_pattern or known.num_layers != needed["num_layers"]:
        raise InputError.of(
            "layer-pattern", "no column holds a hybrid model's pattern of layers, and the "
            "catalogue has no model of this name and size", "name a model of the catalogue",
            "model_name")
    reading.assume("model", known.name, "catalogue entry of that name")
    return replace(known, **needed)


def _dense(row: Row, known: ModelConfig | None) -> dict[str, Any]:
    columns = (("ffn_hidden", "ffn_hidden_size"), ("num_kv_heads", "num_query_groups"),
               ("head_dim", "head_dim"))
    found = {field: integer_of(row.get(column)) for column, field in columns}
    if known is not None and _same_size(known, row):
        found = {field: value or getattr(known, field) for field, value in found.items()}
    return {field: value for field, value in found.items() if value}


def _same_size(known: ModelConfig, row: Row) -> bool:
    hidden, heads = integer_of(row.get("hidden")), integer_of(row.get("num_heads"))
    return hidden in (None, known.hidden_size) and heads in (None, known.num_attention_heads)


def _latent(row: Row, known: ModelConfig | None, reading: Reading) -> dict[str, Any]:
    """Multi-latent attention as ``mla(q1536,kv512,nope128,rope64,v128)``."""
    text = text_of(row.get("attn_kind")).lower().replace(" ", "")
    match = _MLA.search(text)
    if match is not None:
        latent: dict[str, Any] = dict(zip(_MLA_FIELDS, map(int, match.groups()), strict=True))
    elif known is not None and known.kv_lora_rank and text in ("", "mla") and _same_size(
            known, row):
        latent = {name: getattr(known, name) for name in _MLA_FIELDS}
        reading.assume("kv_lora_rank", known.kv_lora_rank, f"catalogue: {known.name}")
    else:
        return {}
    return latent | {"num_query_groups": None}


def _experts(row: Row, known: ModelConfig | None, reading: Reading) -> dict[str, Any]:
    topk = integer_of(row.get("topk"))
    if topk is None:
        raise reading.missing("topk")
    fields: dict[str, Any] = {
        "num_experts": integer_of(row.get("num_experts")), "moe_router_topk": topk,
        "moe_ffn_hidden_size": integer_of(row.get("ffn_hidden"))}
    given = (("moe_shared_ffn", "moe_shared_expert_ffn_hidden_size"),
             ("dense_layers", "moe_num_dense_layers"), ("dense_ffn", "ffn_hidden_size"))
    for column, field in given:
        value = integer_of(row.get(column))
        if value is None and known is not None and known.num_experts == fields["num_experts"]:
            value = getattr(known, field)
            reading.assume(field, value, f"catalogue: {known.name}")
        if value:
            fields[field] = value
    layers = integer_of(row.get("num_layers")) or 0
    if fields.get("moe_num_dense_layers", 0) > layers > 0:
        fields["moe_num_dense_layers"] = layers
    return fields


def _architecture(arch: str, row: Row, reading: Reading) -> dict[str, Any]:
    """What the architecture's family does where no column says so."""
    gpt = arch in _GPT_FAMILY
    fields: dict[str, Any] = {
        "normalization": "layernorm" if gpt else "rmsnorm",
        "position_embedding": "learned" if gpt else "rope", "add_bias_linear": gpt,
        "causal": arch != "bert"}
    for column, usual in (("gated_mlp", not gpt), ("tied_embeddings", gpt)):
        stated = flag_of(row.get(column))
        if stated is None:
            reading.assume(column, usual, f"usual for {arch or 'decoders'}")
        fields[column] = usual if stated is None else stated
    return fields


def _unwritten(
    needed: dict[str, Any], known: ModelConfig | None, framework: str, reading: Reading
) -> dict[str, Any]:
    """Structure that no column carries, of the catalogue's model of that name and width."""
    if known is None or known.hidden_size != needed["hidden_size"] \
            or known.num_attention_heads != needed["num_attention_heads"]:
        return {}
    names = _UNWRITTEN + (("mtp_num_layers",) if framework in _WITH_MTP else ())
    reading.assume("model", known.name, f"catalogue, for {', '.join(names)}")
    return {name: getattr(known, name) for name in names}
