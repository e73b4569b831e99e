"""A row of a steps table, complete but for what frameworks default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from predictor.datasets.steps import read_row

ROW: dict[str, Any] = {
    "framework": "Megatron-LM", "gpu": "A100-SXM4-80GB", "gpus_per_node": 8, "num_gpus": 64,
    "model_name": "a model", "arch": "gpt", "num_layers": 24.0, "hidden": 2048.0,
    "ffn_hidden": 8192.0, "num_heads": 16.0, "num_kv_heads": 16.0, "vocab": 51200.0,
    "seq_len": 2048, "global_batch": 128, "micro_batch": 1.0, "tp": 1.0, "pp": 1.0, "vpp": 1.0,
    "cp": 1.0, "ep": 1, "precision": "bf16", "recompute": "none", "flash_attention": "yes",
    "workload": "pretrain",
}


@pytest.fixture
def read() -> Callable[..., Any]:
    """Read the row with some cells changed: job, strategy and what was assumed."""
    return lambda **cells: read_row({**ROW, **cells})
