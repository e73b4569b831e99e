"""The model of a row of a steps table."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import Any

from predictor.catalog import load_model
from predictor.datasets.cells import flag_of, integer_of, is_blank, text_of
from predictor.datasets.row import Reading, Row
from predictor.spec.errors import InputError
from predictor.spec.model import ModelConfig

_MLA = re.compile(r"mla\(q(\d+),kv(\d+),nope(\d+),rope(\d+),v(\d+)\)")
_NEEDED = (("num_layers", "num_layers"), ("hidden", "hidden_size"),
           ("num_heads", "num_attention_heads"), ("vocab", "vocab_size"))
_GPT_FAMILY = frozenset({"gpt", "bert", "t5"})


def read_model(row: Row, reading: Reading) -> ModelConfig:
    """Return the model that the row's columns describe.

    Columns come first; what they leave open comes from the catalogue's model of that name, then
    from what the architecture usually does.
    """
    known = preset(text_of(row.get("model_name")))
    if known is not None and all(is_blank(row.get(column)) for column, _ in _NEEDED):
        reading.assume("model", known.name, "catalogue entry of that name")
        return known
    fields: dict[str, Any] = {"name": text_of(row.get("model_name")) or "custom"}
    for column, field in _NEEDED:
        value = integer_of(row.get(column))
        if value is None:
            raise reading.missing(column)
        fields[field] = value
    fields |= _dense(row) | _latent(row)
    if (integer_of(row.get("num_experts")) or 0) > 0:
        fields |= _experts(row, known, reading)
    fields |= _architecture(text_of(row.get("arch")).lower(), row, known, reading)
    return _model(tuple(sorted(fields.items())))


@lru_cache(maxsize=8192)
def _model(fields: tuple[tuple[str, Any], ...]) -> ModelConfig:
    return ModelConfig(**dict(fields))


@lru_cache(maxsize=4096)
def preset(name: str) -> ModelConfig | None:
    """Return the catalogue's model for a name as tables write it, None when it has none."""
    plain = re.sub(r"\s*\(.*", "", name).strip()
    if not plain or "/" in plain or "." in plain.rsplit("-", 1)[0][-1:]:
        return None
    for spelling in (plain, re.sub(r"(?<=[a-z])(?=\d)", "-", plain.lower(), count=1)):
        try:
            return load_model(spelling)
        except InputError:
            continue
    return None


def _dense(row: Row) -> dict[str, Any]:
    columns = (("ffn_hidden", "ffn_hidden_size"), ("num_kv_heads", "num_query_groups"),
               ("head_dim", "head_dim"))
    found = {field: integer_of(row.get(column)) for column, field in columns}
    return {field: value for field, value in found.items() if value}


def _latent(row: Row) -> dict[str, Any]:
    """Multi-latent attention as ``mla(q1536,kv512,nope128,rope64,v128)``."""
    match = _MLA.search(text_of(row.get("attn_kind")).lower().replace(" ", ""))
    if match is None:
        return {}
    names = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    latent: dict[str, Any] = dict(zip(names, map(int, match.groups()), strict=True))
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
    if fields.get("moe_num_dense_layers", 0) > layers:
        fields["moe_num_dense_layers"] = layers
    return fields


def _architecture(
    arch: str, row: Row, known: ModelConfig | None, reading: Reading
) -> dict[str, Any]:
    """What the architecture's family does where no column says so."""
    gpt = arch in _GPT_FAMILY
    fields: dict[str, Any] = {
        "normalization": "layernorm" if gpt else "rmsnorm",
        "position_embedding": "learned" if gpt else "rope", "add_bias_linear": gpt,
        "causal": arch != "bert"}
    if known is not None and gpt:
        for name in ("position_embedding", "add_bias_linear", "normalization"):
            fields[name] = getattr(known, name)
    if fields["position_embedding"] == "learned":
        fields["max_position_embeddings"] = integer_of(row.get("seq_len")) or 0
    for column, usual in (("gated_mlp", not gpt), ("tied_embeddings", gpt)):
        stated = flag_of(row.get(column))
        if stated is None:
            reading.assume(column, usual, f"usual for {arch or 'decoders'}")
        fields[column] = usual if stated is None else stated
    return fields


def with_window(model: ModelConfig, known: ModelConfig | None) -> ModelConfig:
    """Return the model with the sliding window of the catalogue's model of that name."""
    if known is None or known.sliding_window == 0 or known.num_layers != model.num_layers:
        return model
    return replace(model, sliding_window=known.sliding_window,
                   full_attention_interval=known.full_attention_interval)
