from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from predictor.datasets.kernels import read_kernels
from predictor.lowering.tables import KernelKind
from predictor.spec.errors import InputError

GEMM = {"gpu": "A100-SXM4-80GB", "dtype": "fp16", "op": "linear", "pass": "fwd", "batch": 1.0,
        "m": 10240.0, "n": 6400.0, "k": 3584.0, "latency_us": 1890.2, "flag": "", "source": "x"}


def read(**changes: Any) -> Any:
    return read_kernels(pd.DataFrame([GEMM | changes]))


def test_a_linear_layer_is_one_kernel_forward_and_two_backward() -> None:
    forward, backward = read(), read(**{"pass": "bwd", "latency_us": 3282.4})
    assert len(forward.table) == 1 and len(backward.table) == 2
    assert forward.measured_s == pytest.approx([1890.2e-6])
    assert backward.table.flops.sum() == pytest.approx(2 * forward.table.flops.sum())
    assert backward.sum_s(np.array([1.0, 2.0])) == pytest.approx([3.0])


def test_causal_attention_counts_half_of_the_scores() -> None:
    cells = {"op": "attention", "batch": 2.0, "seq": 4096.0, "heads": 16.0, "kv_heads": 4.0,
             "head_dim": 128.0, "latency_us": 5000.0}
    full, causal = read(**cells, causal="0"), read(**cells, causal="1")
    assert full.table.kind.tolist() == [KernelKind.ATTENTION]
    assert full.table.flops[0] == 4 * 2 * 16 * 4096**2 * 128
    assert causal.table.flops[0] == pytest.approx(full.table.flops[0] / 2, rel=1e-3)


@pytest.mark.parametrize(("changes", "why"), [
    ({"flag": "BAD_bwd_incomplete"}, "flagged as bad"),
    ({"gpu": "Tesla P4"}, "GPU is not in the catalogue"),
    ({"op": "RoPE"}, "unlisted chain of kernels"),
    ({"op": "conv"}, "unknown operation"),
    ({"dtype": "int3"}, "unknown data type"),
    ({"m": np.nan}, "blank shape"),
    ({"latency_us": np.nan}, "no time"),
    ({"latency_us": 4.0, "m": 8.0}, "too short to tell the kernel from its launch"),
    ({"latency_us": 900.0}, "faster than the peak rate"),
    ({"op": "add", "latency_us": 100.0}, "faster than memory allows"),
])
def test_what_cannot_be_scored_is_refused_with_a_reason(changes: dict[str, Any], why: str) -> None:
    found = read(**changes)
    assert found.refusals() == {why: 1}
    assert len(found.table) == len(found.measured_s) == 0


def test_ids_are_row_numbers_where_the_table_has_none() -> None:
    found = read_kernels(pd.DataFrame([GEMM | {"op": "conv"}, GEMM]))
    assert found.ids == ("1",) and found.refused == (("0", "unknown operation"),)


def test_a_table_of_something_else_is_refused_whole() -> None:
    with pytest.raises(InputError, match="latency_us"):
        read_kernels(pd.DataFrame([{"gpu": "A100"}]))


@pytest.mark.reference
def test_broken_rows_of_the_public_table_stay_out(reference: Path) -> None:
    frame = pd.read_parquet(reference / "kernels" / "kernels_long.parquet")
    broken = frame[frame["flag"].astype(object).fillna("").astype(str).str.startswith("BAD")]
    found = read_kernels(broken)
    assert found.refusals() == {"flagged as bad": len(broken)} and len(broken) == 4069
