"""Reads the layer profiles of vidur (microsoft/vidur, ``data/profiling/compute``, MIT).

Layout: ``<gpu>/<organisation>/<model>/mlp.csv`` and ``attention.csv``; fp16, forward, kernel time
by profiler in milliseconds, whole microseconds only. ``time_stats.<operation>.median`` is one
operation of a decoder layer that is split over ``num_tensor_parallel_workers``
(vidur/profiling/mlp/mlp_impl.py).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.datasets.kernel_schema import stack
from predictor.datasets.sources.frames import catalogue_name, numbers, open_table, tidy, words
from predictor.spec.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

SOURCE = "vidur"
LICENCE = "MIT"
FILES = ("mlp.csv", "attention.csv")
_TENSOR_PARALLEL = "num_tensor_parallel_workers"
_MLP_NEEDED = ("num_tokens", "n_head", "n_kv_head", "n_embd", "n_expanded_embd", "use_gated_mlp",
               "vocab_size", _TENSOR_PARALLEL)
_ATTENTION_NEEDED = ("n_embd", "n_q_head", "n_kv_head", "batch_size", "prefill_chunk_size",
                     "kv_cache_size", "is_prefill", _TENSOR_PARALLEL,
                     "time_stats.attn_prefill.median")
_TRUE = ("true", "1", "1.0")
_BIASED_QKV = "qwen"
"""Models whose query, key and value projection has a bias though nothing else has
(vidur/config/model_config.py)."""
_MILLI = 1e-3


def read(path: Path) -> pd.DataFrame:
    """Return the tidy table of one file, or of all files below a folder.

    Decoding (one query per sample) is left out: training has none.

    Raises
    ------
    InputError
        When there is no such file, a file is of another kind, or none of a GPU in the catalogue
        lies three folders above it.
    """
    path = Path(path)
    files = [path]
    if path.is_dir():
        files = sorted(found for name in FILES for found in path.rglob(name))
    if not files:
        raise InputError.of("vidur-layout", f"there is no {' or '.join(FILES)} below {path}",
                            "give the folder data/profiling/compute of vidur")
    return stack(map(_file, files))


def _file(path: Path) -> pd.DataFrame:
    if path.name not in FILES:
        raise InputError.of("vidur-layout", f"{path.name} is not a profile of vidur",
                            f"give a file called {' or '.join(FILES)}")
    parts = path.absolute().parts[-4:]
    needed = _MLP_NEEDED if path.name == "mlp.csv" else _ATTENTION_NEEDED
    table = open_table(path, needed, f"vidur's {path.stem} profiles")
    gpu = catalogue_name(parts[0])
    shared = {
        "source": SOURCE, "licence": LICENCE, "file": "/".join(parts), "timing_kind": "kernel",
        "gpu": gpu, "software": "vllm", "pass": "fwd", "dtype": "fp16",
        "tp": numbers(table, _TENSOR_PARALLEL)}
    if not gpu:
        raise InputError.of("vidur-layout", f"{'/'.join(parts)}: no GPU is called {parts[0]!r}",
                            "keep vidur's folders: <gpu>/<organisation>/<model>/" + path.name)
    if path.name == "attention.csv":
        return tidy(shared | _prefill(table), table.index)
    layer = _Layer(table, parts[2])
    return stack(
        tidy(shared | {"impl": name, "latency_s": numbers(table, _median(name)) * _MILLI}
             | shape(layer), table.index)
        for name, shape in _OPERATIONS.items() if _median(name) in table)


def _median(operation: str) -> str:
    return f"time_stats.{operation}.median"


def _prefill(table: pd.DataFrame) -> dict[str, Any]:
    """Causal attention of a chunk of new tokens to itself and to those that are cached."""
    prefill = words(table, "is_prefill").str.lower().isin(_TRUE)
    chunk, tp = numbers(table, "prefill_chunk_size"), numbers(table, _TENSOR_PARALLEL)
    width = numbers(table, "n_embd") / numbers(table, "n_q_head")
    seconds = numbers(table, _median("attn_prefill")) * _MILLI
    return {
        "op": "attention", "impl": words(table, "attention_backend"), "causal": "1",
        "batch": numbers(table, "batch_size"), "seq": chunk,
        "seq_kv": chunk + numbers(table, "kv_cache_size"),
        "heads": numbers(table, "n_q_head") / tp, "kv_heads": numbers(table, "n_kv_head") / tp,
        "head_dim": width, "head_dim_v": width, "latency_s": seconds.where(prefill)}


class _Layer:
    """The dimensions of a decoder layer, one entry per row of its table."""

    def __init__(self, table: pd.DataFrame, model: str) -> None:
        self.tokens = numbers(table, "num_tokens")
        self.tp = numbers(table, _TENSOR_PARALLEL)
        self.hidden = numbers(table, "n_embd")
        self.ffn = numbers(table, "n_expanded_embd") / self.tp
        self.heads, self.kv_heads = numbers(table, "n_head"), numbers(table, "n_kv_head")
        self.head_dim = self.hidden / self.heads
        self.vocab = numbers(table, "vocab_size") / self.tp
        self.gated = words(table, "use_gated_mlp").str.lower().isin(_TRUE)
        self.biased_qkv = ~self.gated | model.lower().startswith(_BIASED_QKV)

    def gemm(self, n: Any, k: Any, biased: Any = False) -> dict[str, Any]:
        """Return a linear layer of ``n`` outputs and ``k`` inputs; GPT-like ones have a bias."""
        return {"op": np.where(biased, "linear_bias", "linear"), "batch": 1.0, "m": self.tokens,
                "n": n, "k": k, "flops": 2 * self.tokens * n * k}

    def rows(self, op: Any, n: Any) -> dict[str, Any]:
        """Return a memory-bound operation over ``n`` elements per token."""
        return {"op": op, "m": self.tokens, "n": n}

    def norm(self) -> dict[str, Any]:
        """LayerNorm in the one model without a gated MLP (phi-2), RMSNorm in the others."""
        return self.rows(np.where(self.gated, "rmsnorm", "layernorm"), self.hidden)


def _rope(layer: _Layer) -> dict[str, Any]:
    heads, groups = layer.heads / layer.tp, layer.kv_heads / layer.tp
    return layer.rows("rope", (heads + groups) * layer.head_dim) | {
        "heads": heads, "kv_heads": groups, "head_dim": layer.head_dim}


def _embedding(layer: _Layer) -> dict[str, Any]:
    """A shard of the table also masks the tokens of other shards, in separate kernels."""
    return layer.rows("embedding", layer.hidden) | {
        "k": layer.vocab, "impl": np.where(layer.tp > 1, "emb masked", "emb")}


_OPERATIONS: dict[str, Callable[[_Layer], dict[str, Any]]] = {
    "emb": _embedding,
    "input_layernorm": _Layer.norm,
    "attn_pre_proj": lambda layer: layer.gemm(
        (layer.heads + 2 * layer.kv_heads) * layer.head_dim / layer.tp, layer.hidden,
        layer.biased_qkv),
    "attn_rope": _rope,
    # Row-parallel layers add their bias after the timer stops.
    "attn_post_proj": lambda layer: layer.gemm(layer.hidden, layer.hidden / layer.tp),
    "post_attention_layernorm": _Layer.norm,
    "mlp_up_proj": lambda layer: layer.gemm(
        layer.ffn * np.where(layer.gated, 2.0, 1.0), layer.hidden, ~layer.gated),
    "mlp_act": lambda layer: layer.rows(np.where(layer.gated, "swiglu", "gelu"), layer.ffn),
    "mlp_down_proj": lambda layer: layer.gemm(layer.hidden, layer.ffn),
    "add": lambda layer: layer.rows("res_add", layer.hidden) | {
        "impl": np.where(layer.gated, "add", "add of three")}}
"""The columns of ``mlp.csv`` and what they time. Without a gated MLP attention and MLP run side
by side, and one expression adds both to the residual."""
