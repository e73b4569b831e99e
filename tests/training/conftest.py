"""A small steps table."""

from __future__ import annotations

import pandas as pd
import pytest

ROW = {
    "id": "a", "source": "s", "source_ref": "r", "family": "f", "framework": "Megatron-LM",
    "framework_version": "1", "date": "2024", "gpu": "A100-SXM4-80GB", "gpus_per_node": 8,
    "num_gpus": 16, "model_name": "gpt", "arch": "gpt", "num_layers": 24, "hidden": 2048,
    "num_heads": 16, "vocab": 51200, "seq_len": 2048, "global_batch": 64, "micro_batch": 1,
    "tp": 1, "pp": 1, "dp": None, "precision": "bf16", "recompute": "none", "workload": "pretrain",
    "step_time_s": 1.0, "oom": False, "rank_group": "g", "notes": "n", "tier": "A",
    "tokens_per_s_per_gpu": 5.0, "model_tflops_per_gpu": 90.0, "mfu": 0.4, "chk_ratio": 1.0,
    "chk_tflops_6N": 7.0, "consistency": "ok", "step_time_basis": "log",
}


@pytest.fixture
def steps() -> pd.DataFrame:
    """Five strategies of one job; the last one breaks a rule, the fourth ran out of memory."""
    changes = [{}, {"tp": 2, "step_time_s": 1.2, "workload": "pretrain(mock data)"},
               {"pp": 2, "step_time_s": 1.5, "tier": "B"}, {"tp": 8, "step_time_s": None,
               "oom": True}, {"tp": 3, "step_time_s": 1.1, "family": "h", "tier": "C"}]
    return pd.DataFrame([{**ROW, "id": name, **change}
                         for name, change in zip("abcde", changes, strict=True)])
