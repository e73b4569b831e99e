from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from predictor.datasets.kernel_schema import validate
from predictor.datasets.kernels import measurements
from predictor.datasets.physical import reasons
from predictor.datasets.sources.aiconfigurator import OPERATIONS, package_folder, read
from predictor.spec.errors import InputError

COMMON = {"framework": "SGLang", "version": "1.2", "device": "NVIDIA H200",
          "kernel_source": "fa3", "latency": 0.5}
ATTENTION = COMMON | {
    "batch_size": 2, "isl": 1024, "num_heads": 8, "num_key_value_heads": 2, "head_dim": 128,
    "beam_width": 1, "attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16", "step": 0,
    "window_size": 0}
GEMM = COMMON | {"gemm_dtype": "bfloat16", "m": 4096, "n": 2048, "k": 1024}
MLA = COMMON | {"mla_dtype": "bfloat16", "kv_cache_dtype": "fp8", "num_heads": 16,
                "batch_size": 4, "isl": 2048, "tp_size": 8, "step": 512}
MOE = COMMON | {"moe_dtype": "fp8_block", "num_tokens": 8192, "hidden_size": 2048,
                "inter_size": 1024, "topk": 8, "num_experts": 64, "moe_tp_size": 2,
                "moe_ep_size": 4, "distribution": "balanced", "kernel_source": "cutlass"}
TABLES = {
    "gemm/sglang/1.2/gemm": [
        GEMM, GEMM | {"gemm_dtype": "fp8"}, GEMM | {"gemm_dtype": "fp8_block"},
        GEMM | {"gemm_dtype": "nvfp4"}, GEMM | {"gemm_dtype": "int4_wo"},
        GEMM | {"latency": np.nan}],
    "attention/sglang/1.2/context_attention": [
        ATTENTION, ATTENTION | {"num_key_value_heads": 0, "window_size": 128},
        ATTENTION | {"step": 1024, "kv_cache_dtype": "fp8"}],
    "encoder_attention/sglang/1.2/encoder_attention": [
        {name: cell for name, cell in ATTENTION.items()
         if name not in ("num_key_value_heads", "kv_cache_dtype", "step", "window_size")}],
    "mla/trtllm/1.3/context_mla": [MLA],
    "moe/trtllm/1.3/moe": [MOE, MOE | {"kernel_source": "cutlass_nongated"},
                           MOE | {"num_tokens": 1}],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for system in ("h200_sxm", "b60"):
        for name, rows in TABLES.items():
            path = tmp_path / "systems" / "data" / system / f"{name}_perf.parquet"
            path.parent.mkdir(parents=True)
            pd.DataFrame(rows).to_parquet(path)
    return tmp_path


def test_a_gemm_is_timed_in_milliseconds_by_graph_replay(folder: Path) -> None:
    table = read(folder, ("gemm",))
    row = table.iloc[0]
    assert row["latency_s"] == pytest.approx(0.5e-3) and row["timing_kind"] == "graph"
    assert (row["m"], row["n"], row["k"], row["gpu"]) == (4096, 2048, 1024, "h200-sxm")
    assert (row["software"], row["version"], row["licence"]) == ("sglang", "1.2", "Apache-2.0")
    assert row["file"] == "h200_sxm/gemm/sglang/1.2/gemm_perf.parquet"


def test_types_of_one_width_are_told_apart_by_their_kernels(folder: Path) -> None:
    table = read(folder, ("gemm",))
    assert table["dtype"].tolist() == ["bf16", "fp8", "fp8", "nvfp4"]
    assert table["impl"].tolist() == ["fa3", "fa3", "fa3 fp8_block", "fa3"]


def test_attention_knows_groups_windows_and_what_is_cached(folder: Path) -> None:
    plain, windowed, cached = read(folder, ("context_attention",)).to_dict("records")
    assert (plain["heads"], plain["kv_heads"], plain["seq"], plain["seq_kv"]) == (8, 2, 1024, 1024)
    assert plain["causal"] == "1" and np.isnan(plain["window"])
    assert (windowed["kv_heads"], windowed["window"]) == (8, 128)
    assert cached["seq_kv"] == 2048 and cached["impl"] == "fa3 fp8 cache"


def test_encoders_see_everything_and_latent_attention_has_two_widths(folder: Path) -> None:
    encoder, latent = read(folder, ("encoder_attention", "context_mla")).to_dict("records")
    assert encoder["causal"] == "0" and encoder["kv_heads"] == 8
    assert (latent["head_dim"], latent["head_dim_v"], latent["seq_kv"]) == (192, 128, 2560)
    assert latent["causal"] == "1" and latent["tp"] == 8


def test_experts_are_one_grouped_gemm_of_their_mean_size(folder: Path) -> None:
    gated, plain, single = read(folder, ("moe",)).to_dict("records")
    assert gated["batch"] == pytest.approx(16) and gated["m"] == pytest.approx(1024)
    assert (gated["n"], gated["k"]) == (3 * 512, 2048) and plain["n"] == 2 * 512
    assert (gated["experts"], gated["topk"], gated["tp"]) == (64, 8, 2)
    assert gated["impl"] == "cutlass fp8_block balanced"
    # One token has eight experts, two of them here; sixteen would be idle otherwise.
    assert single["batch"] == pytest.approx(2, rel=0.1)
    assert single["batch"] * single["m"] == pytest.approx(2)


def test_every_operation_obeys_the_schema_and_becomes_kernels(folder: Path) -> None:
    pytest.importorskip("pandera")
    table = validate(read(folder, OPERATIONS))
    found = measurements(table)
    assert found.refused == () and len(found) == 4 + 3 + 1 + 1 + 3


def test_a_sample_is_the_same_every_time(folder: Path) -> None:
    first, again = (read(folder, ("gemm",), most_rows=2, seed=5) for _ in range(2))
    assert first.equals(again) and len(first) == 2


def test_what_is_not_there_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="conv"):
        read(folder, ("conv", "gemm"))
    with pytest.raises(InputError, match="b60"):
        read(folder, systems=("b60",))
    with pytest.raises(InputError, match="gemm"):
        read(tmp_path / "nothing", ("gemm",))


@pytest.mark.skipif(find_spec("aiconfigurator_core") is None,
                    reason="aiconfigurator: the package is not installed")
def test_the_installed_package_is_read_and_possible() -> None:
    table = read(package_folder(), ("gemm", "context_attention", "encoder_attention"),
                 systems=("h200_sxm", "b200_sxm"), most_rows=2000)
    assert set(table["gpu"]) == {"h200-sxm", "b200-sxm"}
    assert np.mean(reasons(measurements(table)) != "") < 0.001


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "aiconfigurator_core", raising=False)
    monkeypatch.setattr(sys, "path_importer_cache", {})
    with pytest.raises(InputError, match="aiconfigurator_core"):
        package_folder()
