from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from predictor.datasets.kernel_rows import score_share
from predictor.datasets.kernels import measurements, read_kernels
from predictor.lowering.tables import KernelKind, Phase
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


TIDY = {"source": "s", "licence": "MIT", "timing_kind": "kernel", "gpu": "a100-sxm-80gb",
        "software": "torch", "dtype": "fp16", "op": "linear", "pass": "fwd", "m": 1024.0,
        "n": 512.0, "k": 256.0, "latency_s": 1e-3}


def tidy(**changes: Any) -> Any:
    return measurements(pd.DataFrame([TIDY | changes]))


def attention(**changes: Any) -> Any:
    return tidy(op="attention", batch=2.0, seq=1024.0, heads=8.0, head_dim=128.0,
                **changes).table


def test_a_measurement_says_how_and_with_what_it_was_made() -> None:
    found = tidy(impl="cublas", timing_kind="graph")
    assert (found.timing_kind, found.software, found.impl, found.licence, found.passes) == (
        ("graph",), ("torch",), ("cublas",), ("MIT",), ("fwd",))


def test_gradients_alone_are_one_kernel_each() -> None:
    both, data, weight = (tidy(**{"pass": way}).table for way in ("bwd", "dgrad", "wgrad"))
    assert data.phase.tolist() == [Phase.BACKWARD] and weight.phase.tolist() == [Phase.WEIGHT]
    assert (data.m[0], data.n[0], data.k[0]) == (1024, 256, 512)
    assert (weight.m[0], weight.n[0], weight.k[0]) == (512, 256, 1024)
    assert both.flops.tolist() == [*data.flops, *weight.flops]


def test_a_grouped_gemm_has_its_groups_in_the_batch() -> None:
    table = tidy(op="grouped_gemm", batch=8.0).table
    assert table.kind.tolist() == [KernelKind.GROUPED_GEMM]
    assert table.flops[0] == 2 * 8 * 1024 * 512 * 256


def test_latent_attention_has_values_of_their_own_width() -> None:
    latent = attention(head_dim_v=64.0)
    forward = 2 * 2 * 8 * 1024**2 * (128 + 64)
    assert latent.k.tolist() == [128] and latent.flops[0] == forward
    # Scores again, two gradients of their width; the context's two gradients.
    backward = attention(head_dim_v=64.0, **{"pass": "bwd"})
    assert backward.flops[0] == 2 * 2 * 8 * 1024**2 * (3 * 128 + 2 * 64)


def test_keys_may_outnumber_queries() -> None:
    cached = attention(seq_kv=4096.0, causal="1")
    assert (cached.m[0], cached.n[0]) == (1024, 4096)
    visible = sum(min(query + 1 + 3072, 4096) for query in range(1024))
    assert cached.causal[0] == pytest.approx(visible / (1024 * 4096))


@pytest.mark.parametrize(("queries", "keys", "window"), [
    (64, 64, 16), (64, 64, 64), (64, 64, 200), (16, 64, 8), (16, 64, 56), (64, 16, 8), (1, 1, 1),
])
def test_a_window_leaves_each_query_its_last_keys(queries: int, keys: int, window: int) -> None:
    seen = [max(min(query + 1 + keys - queries, keys, window), 0) for query in range(queries)]
    share = score_share(np.array([float(queries)]), np.array([float(keys)]),
                        causal=np.array([True]), window=np.array([float(window)]))
    assert share[0] == pytest.approx(sum(seen) / (queries * keys))
    assert attention(window=128.0, causal="1").causal[0] < attention(causal="1").causal[0]


@pytest.mark.parametrize(("op", "way", "accesses"), [
    ("silu", "fwd", 2), ("swiglu", "fwd", 3), ("swiglu", "bwd", 5), ("rope", "fwd", 2),
    ("causal_softmax", "fwd", 1.5), ("masked_fill", "fwd", 2), ("cross_entropy", "bwd", 2),
    ("permute", "fwd", 2), ("embedding", "fwd", 2), ("optimizer", "step", 7),
])
def test_a_memory_bound_operation_counts_reads_and_writes(
        op: str, way: str, accesses: float) -> None:
    table = tidy(op=op, k=np.nan, **{"pass": way}).table
    assert table.bytes.tolist() == [2 * accesses * 1024 * 512]
    assert table.launches.tolist() == [1] and table.k.tolist() == [0]
    assert (table.phase[0] == Phase.STEP) == (way == "step")


def test_quantizing_reads_sixteen_bits_and_writes_its_own_type() -> None:
    assert tidy(op="quantize", dtype="fp8").table.bytes.tolist() == [3 * 1024 * 512]


def test_an_embedding_reads_no_more_than_its_table_and_writes_all_of_its_gradient() -> None:
    rows = 100.0
    forward = tidy(op="embedding", k=rows).table.bytes[0]
    backward = tidy(op="embedding", k=rows, **{"pass": "bwd"}).table.bytes[0]
    assert forward == 2 * 512 * (1024 + rows)
    assert backward == 2 * 512 * (2 * 1024 + rows + rows)


def test_an_unfused_chain_is_one_row_with_all_its_traffic() -> None:
    fused, chain = tidy(op="rope").table, tidy(op="rope", impl="RoPE").table
    assert len(chain) == 1 and chain.launches[0] == 10
    assert chain.bytes[0] == 10 * fused.bytes[0]


@pytest.mark.parametrize(("changes", "why"), [
    ({"gpu": "p4"}, "GPU is not in the catalogue"), ({"op": "conv"}, "unknown operation"),
    ({"pass": "both"}, "unknown pass"), ({"dtype": "int3"}, "unknown data type"),
    ({"k": np.nan}, "blank shape"), ({"latency_s": np.inf}, "no time"),
    ({"flag": "BAD_clock"}, "flagged as bad"),
])
def test_a_tidy_row_that_says_too_little_is_refused(changes: dict[str, Any], why: str) -> None:
    assert tidy(**changes).refused == (("0", why),)


def test_flagged_rows_are_read_on_demand() -> None:
    assert len(measurements(pd.DataFrame([TIDY | {"flag": "BAD_clock"}]), flagged=True)) == 1


def test_a_column_that_the_schema_lacks_is_refused() -> None:
    with pytest.raises(InputError, match="latency_us"):
        tidy(latency_us=3.0)
