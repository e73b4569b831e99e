from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from predictor.datasets.kernel_schema import validate
from predictor.datasets.sources.kernels_long import LICENCES, TABLE, read, tidy
from predictor.spec.errors import InputError

ROW = {"source": "vidur", "gpu": "A100-SXM4-80GB", "dtype": "bfloat16", "op": "linear",
       "pass": "fwd", "m": 128.0, "n": 256.0, "k": 512.0, "latency_us": 20.0, "flag": None}


def one(**changes: Any) -> dict[str, Any]:
    return tidy(pd.DataFrame([ROW | changes])).iloc[0].to_dict()


def test_words_and_units_become_those_of_the_schema() -> None:
    row = one()
    assert (row["gpu"], row["dtype"], row["licence"]) == ("a100-sxm-80gb", "bf16", "MIT")
    assert row["latency_s"] == pytest.approx(20e-6) and row["flag"] == ""
    assert one(op="RoPE")["op"] == "rope" and one(causal="True")["causal"] == "1"


@pytest.mark.parametrize(("source", "kind"), [
    ("estimate-train-time", "kernel"), ("neusight", "event"), ("vidur", "kernel"),
    ("primus-turbo", "event"), ("cudnn-frontend", "kernel"), ("somebody", "kernel")])
def test_each_source_times_in_its_own_way(source: str, kind: str) -> None:
    assert one(source=source)["timing_kind"] == kind
    assert one(source=source)["licence"] == LICENCES.get(source, "")


@pytest.mark.parametrize(("source", "implementation", "software"), [
    ("cudnn-frontend", "cudnn", "cudnn"), ("cudnn-frontend", "pyt_math", "torch"),
    ("cudnn-frontend", "flash_attention_det", "flash-attn"),
    ("estimate-train-time", "flash_attn_func", "flash-attn"), ("primus-turbo", "", "primus-turbo")])
def test_the_library_that_ran_is_named(source: str, implementation: str, software: str) -> None:
    assert one(source=source, impl=implementation)["software"] == software


def test_a_blank_implementation_of_a_known_chain_is_filled_in() -> None:
    row = one(source="estimate-train-time", op="embedding", tp=16.0)
    assert row["impl"] == "embedding" and row["k"] == 3200
    assert one(op="embedding", tp=16.0)["k"] == 512


def test_rows_keep_their_places_and_unknown_words_stay() -> None:
    found = tidy(pd.DataFrame([ROW | {"gpu": "Tesla P4"}, ROW | {"op": "conv"}], index=[9, 4]))
    assert found["gpu"].tolist() == ["Tesla P4", "a100-sxm-80gb"]
    assert found["op"].tolist() == ["linear", "conv"]


def test_rows_without_a_gpu_are_left_out_of_the_file(tmp_path: Path) -> None:
    pd.DataFrame([ROW, ROW | {"gpu": None}]).to_parquet(tmp_path / TABLE)
    assert len(read(tmp_path)) == len(read(tmp_path / TABLE)) == 1


def test_another_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no table"):
        read(tmp_path)
    pd.DataFrame([{"gpu": "A100"}]).to_parquet(tmp_path / TABLE)
    with pytest.raises(InputError, match="latency_us"):
        read(tmp_path)


@pytest.mark.reference
def test_the_public_table_obeys_the_schema(reference: Path) -> None:
    pytest.importorskip("pandera")
    found = validate(read(reference / "kernels"))
    assert len(found) == 454_136 - 30
    assert set(found["source"]) == set(LICENCES)
