"""Reads the peaks that Megatron-LM's functional tests record, with the attention each one runs.

The table of measured peaks holds some of these tests too, without their attention.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from predictor.datasets.steps import read_row
from predictor.spec.errors import InputError
from predictor.spec.job import TrainingJob
from predictor.spec.strategy import Strategy

GPUS = {"a100": "A100-SXM-80GB", "h100": "H100-80GB", "gb200": "GB200"}
FAMILIES = ("gpt", "bert")
"""The others have layers, towers or experts that the columns do not describe in full."""
VOCABULARIES = {"BertWordPieceCase": 28996, "GPTSentencePieceTokenizer": 256000}
DEFAULT_VOCABULARY = 50257
_OPEN = ("mla", "mtp", "pp_layout", "fsdp", "zero", "fp8", "recompute")
_NAMED = {
    "world": "num_gpus", "gpus_per_node": "gpus_per_node", "layers": "num_layers",
    "hidden": "hidden", "heads": "num_heads", "kv_channels": "head_dim", "seq": "seq_len",
    "gbs": "global_batch", "mbs": "micro_batch", "tp": "tp", "pp": "pp", "cp": "cp", "ep": "ep",
    "sp": "sp"}

Tests = tuple[pd.DataFrame, list[TrainingJob], list[Strategy]]


def read_functional_tests(path: Path) -> Tests:
    """Return the rows whose configuration is stated in full, as jobs and strategies."""
    table = pd.read_csv(path, low_memory=False)
    plain = table[list(_OPEN)].isna().all(axis=1) & ~table["test_type"].str.startswith("frozen")
    stated = table[["world", "seq", "gbs", "layers", "mem_max_alloc_GiB"]].notna().all(axis=1)
    chosen = table[plain & stated & table["family"].isin(FAMILIES) & table["hw"].isin(GPUS)]
    kept, jobs, strategies = [], [], []
    for label, row in zip(chosen.index, chosen.to_dict("records"), strict=True):
        try:
            job, strategy, _ = read_row(_as_steps_row(row))
        except InputError:
            continue
        kept.append(label)
        jobs.append(job)
        strategies.append(strategy)
    return chosen.loc[kept].copy(), jobs, strategies


def _as_steps_row(row: dict[str, Any]) -> dict[str, Any]:
    def stated(name: str, default: Any) -> Any:
        return default if pd.isna(row[name]) else row[name]

    named = {name: stated(column, None) for column, name in _NAMED.items()}
    chunk = row["layers"] / row["pp"] / stated("vpp_layers", row["layers"] / row["pp"])
    unfused = row["attn_backend"] in ("unfused", "local") or row["impl"] == "local"
    return named | {
        "framework": "Megatron-LM", "gpu": GPUS[row["hw"]], "arch": row["family"],
        "ffn_hidden": stated("ffn", 4 * row["hidden"]),
        "num_kv_heads": stated("kv_groups", row["heads"]),
        "vocab": stated("vocab_size", VOCABULARIES.get(row["tokenizer"], DEFAULT_VOCABULARY)),
        "precision": "bf16" if row["bf16"] else "fp16" if row["fp16"] else "fp32",
        "zero_stage": int(row["dist_opt"]), "recompute": "none", "vpp": stated("vpp", chunk),
        "gated_mlp": bool(stated("swiglu", False)),
        "tied_embeddings": not stated("untie", False), "workload": "pretrain",
        "flash_attention": "no" if unfused else "yes"}
