from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from predictor.catalog import load_gpu
from predictor.datasets.kernel_schema import validate
from predictor.datasets.sources import simumax
from predictor.spec.errors import InputError

A100 = {"gpu": "A100-PCIe", "peak_tflops": 312.0, "eff": 0.5}
MATMUL = A100 | {"op": "matmul", "b": 1, "accumulate": False, "out_dtype": "bf16"}
GROUPED = A100 | {"op": "group_matmul", "ng": 8, "M": 100, "N": 3000, "K": 500, "dtype": "bf16",
                  "main_grad_dtype": "fp32", "accumulate": False}
ATTENTION = A100 | {"batch": 2, "seq_len": 1000, "head_num": 16, "kv_head_num": 4,
                    "qk_head_dim": 192, "v_head_dim": 128, "qkv_contiguous": True}


def write(path: Path, *rows: dict[str, object]) -> Path:
    file = path / "efficiency.csv"
    pd.DataFrame(list(rows)).to_csv(file, index=False)
    return file


def test_three_gemms_of_one_layer_carry_its_forward_shape(tmp_path: Path) -> None:
    # 4000 tokens, 5000 inputs, 1500 outputs.
    file = write(tmp_path, MATMUL | {"layout": "TN", "m": 4000, "k": 5000, "n": 1500},
                 MATMUL | {"layout": "NN", "m": 4000, "k": 1500, "n": 5000},
                 MATMUL | {"layout": "NT", "m": 1500, "k": 4000, "n": 5000, "accumulate": True,
                           "out_dtype": "fp32"})
    frame = validate(simumax.read(file))
    assert list(frame["pass"]) == ["fwd", "dgrad", "wgrad"]
    assert set(zip(frame["m"], frame["n"], frame["k"], strict=True)) == {(4000, 1500, 5000)}
    assert set(frame["flops"]) == {6e10}
    # 6e10 FLOP at half of 312 TFLOP/s.
    assert frame["latency_s"].to_numpy() == pytest.approx([6e10 / 156e12] * 3)
    assert list(frame["impl"]) == ["general_gemm TN bf16", "general_gemm NN bf16",
                                   "general_gemm NT fp32 accumulate"]
    row = frame.iloc[0]
    assert (row["gpu"], row["dtype"], row["software"], row["timing_kind"]) == (
        "a100-pcie-80gb", "bf16", "te", "host")


def test_grouped_gemm_is_keyed_by_its_forward_shape(tmp_path: Path) -> None:
    file = write(tmp_path, GROUPED | {"stage": "fwd"}, GROUPED | {"stage": "bwd_grad_act"},
                 GROUPED | {"stage": "bwd_grad_w", "accumulate": True})
    frame = validate(simumax.read(file))
    assert list(frame["pass"]) == ["fwd", "dgrad", "wgrad"]
    assert set(zip(frame["op"], frame["batch"], frame["m"], frame["n"], frame["k"],
                   strict=True)) == {("grouped_gemm", 8, 100, 3000, 500)}
    assert set(frame["flops"]) == {2.4e9}
    assert frame["impl"][2] == "general_grouped_gemm fp32 accumulate"


def test_causal_attention_is_counted_in_full(tmp_path: Path) -> None:
    file = write(tmp_path, ATTENTION | {"op": "sdp_fwd", "eff": 1.0},
                 ATTENTION | {"op": "sdp_bwd", "qkv_contiguous": False})
    frame = validate(simumax.read(file))
    # 2 * 2 * 1000^2 * 16 * 320 = 2.048e10, backward 2.5 times that.
    assert list(frame["flops"]) == [2.048e10, 5.12e10]
    assert frame["latency_s"].to_numpy() == pytest.approx([2.048e10 / 312e12, 5.12e10 / 156e12])
    assert list(frame["pass"]) == ["fwd", "bwd"]
    assert list(frame["impl"]) == ["sdp contiguous", "sdp strided"]
    assert set(frame["causal"]) == {"1"}
    assert (frame["kv_heads"][0], frame["head_dim"][0], frame["head_dim_v"][0]) == (4, 192, 128)


def test_peak_that_is_not_the_catalogues_is_refused(tmp_path: Path) -> None:
    rows = MATMUL | {"layout": "TN", "m": 1, "k": 1, "n": 1}
    file = write(tmp_path, rows | {"peak_tflops": 624.0}, rows | {"gpu": "B200"})
    with pytest.raises(InputError) as caught:
        simumax.read(file)
    assert [problem.message for problem in caught.value.problems] == [
        "efficiencies of a100-pcie-80gb are of 624 TFLOP/s, but its bf16 peak is 312 TFLOP/s",
        "efficiencies of b200-sxm are of 312 TFLOP/s, but its bf16 peak is 2250 TFLOP/s"]


@pytest.mark.parametrize(("row", "message"), [
    (MATMUL | {"op": "fp8_matmul"}, "unknown operation fp8_matmul"),
    (MATMUL | {"layout": "TT"}, "unknown layout TT"),
    (GROUPED | {"stage": "later"}, "unknown stage later"),
    (MATMUL | {"colour": "red"}, "unknown column colour")])
def test_words_of_another_kind_are_refused(
        tmp_path: Path, row: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        simumax.read(write(tmp_path, row))


@pytest.mark.reference
def test_reference_table(reference: Path) -> None:
    frame = validate(simumax.read(reference / "kernels" / "simumax_efficiency.csv"))
    assert len(frame) == 905
    peak = frame["gpu"].map(lambda gpu: load_gpu(gpu).bf16_flops)
    done = frame["flops"] * np.where(frame["op"] == "attention", 0.5, 1.0)
    share = done / frame["latency_s"] / peak
    assert share.max() < 0.9
    assert 0.3 < share.median() < 0.7
