from pathlib import Path

import numpy as np
import pytest

from predictor.catalog import load_gpu
from predictor.datasets.kernel_schema import validate
from predictor.datasets.sources import primus_turbo
from predictor.spec.errors import InputError

RESULTS = "Check,Forward Time (ms),Forward TFLOPS,Backward Time (ms),Backward TFLOPS"
GEMM = f"TestID,Platform,GPU,Case,MBS,M,N,K,Dtype,Granularity,{RESULTS}\n"
GROUPED = f"TestID,Platform,GPU,Case,B,M,N,K,Dtype,{RESULTS}\n"
ATTENTION = ("TestID,Platform,GPU,Batch,SeqLen,num_head_q,num_head_kv,head_dim_qk,head_dim_v,"
             f"Causal,{RESULTS}\n")


def write(path: Path, header: str, *rows: str) -> Path:
    path.write_text(header + "".join(f"{row}\n" for row in rows), encoding="utf-8")
    return path


def test_gemm_times_come_from_the_rate(tmp_path: Path) -> None:
    # 2 * 1000 * 2000 * 5000 = 2e10 FLOP: at 400 TFLOP/s 50 us, which prints as 0.05 ms.
    file = write(tmp_path / "gemm.csv", GEMM,
                 "1,ROCm,MI300X,Llama,1,1000,2000,5000,bf16,,PASS,0.05,400.00,0.13,320.00",
                 "2,ROCm,MI355X,Llama,1,1000,2000,5000,fp8,blockwise,FAIL,0.05,400.00,0.13,320.00",
                 "3,ROCm,MI300X,Llama,1,1000,2000,5000,bf16,,ERROR,ERROR,0.00,ERROR,0.00")
    frame = validate(primus_turbo.read(file))
    assert list(frame["pass"]) == ["fwd", "fwd", "bwd", "bwd"]
    assert frame["latency_s"].to_numpy() == pytest.approx([50e-6, 50e-6, 125e-6, 125e-6])
    assert list(frame["flops"]) == [2e10, 2e10, 4e10, 4e10]
    assert list(frame["gpu"]) == ["mi300x", "mi355x"] * 2
    assert list(frame["impl"]) == ["gemm", "gemm_fp8 blockwise"] * 2
    assert list(frame["flag"]) == ["", "check-failed"] * 2
    row = frame.iloc[0]
    assert (row["op"], row["batch"], row["m"], row["n"], row["k"]) == ("gemm", 1, 1000, 2000, 5000)
    assert (row["file"], row["timing_kind"], row["causal"]) == ("gemm.csv", "host", "")


def test_grouped_gemm_counts_all_groups(tmp_path: Path) -> None:
    file = write(tmp_path / "grouped.csv", GROUPED,
                 "1,ROCm,MI300X,MoE,8,1000,2000,5000,bf16,PASS,0.40,400.00,1.00,320.00")
    row = primus_turbo.read(file).iloc[0]
    assert (row["op"], row["batch"], row["m"]) == ("grouped_gemm", 8, 1000)
    assert row["latency_s"] == pytest.approx(8 * 50e-6)


def test_attention_halves_causal_work_and_takes_its_type_from_the_file(tmp_path: Path) -> None:
    # 2 * 2 * 1000^2 * 16 * (192 + 128) = 2.048e10 FLOP without a mask.
    file = write(tmp_path / "attention_fp8.csv", ATTENTION,
                 "1,ROCm,MI300X,2,1000,16,4,192,128,False,PASS,0.10,204.80,0.25,204.80",
                 "2,ROCm,MI300X,2,1000,16,4,192,128,True,PASS,0.10,102.40,0.25,102.40")
    frame = validate(primus_turbo.read(file))
    assert list(frame["causal"]) == ["0", "1", "0", "1"]
    assert list(frame["flops"]) == pytest.approx([2.048e10, 1.024e10, 5.12e10, 2.56e10])
    assert frame["latency_s"].to_numpy() == pytest.approx([1e-4, 1e-4, 2.5e-4, 2.5e-4])
    row = frame.iloc[0]
    assert (row["dtype"], row["impl"]) == ("fp8", "flash_attn_fp8_func")
    assert (row["batch"], row["seq"], row["seq_kv"], row["heads"], row["kv_heads"]) == (
        2, 1000, 1000, 16, 4)
    assert (row["head_dim"], row["head_dim_v"]) == (192, 128)
    assert np.isnan(row["m"])


def test_time_that_contradicts_its_rate_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "gemm.csv", GEMM,
                 "1,ROCm,MI300X,Llama,1,1000,2000,5000,bf16,,PASS,0.50,400.00,0.13,320.00")
    with pytest.raises(InputError, match=r"row 0 says 0.5 ms and 400.0 TFLOP/s, which is 0.05 ms"):
        primus_turbo.read(file)


def test_tables_of_another_kind_are_refused(tmp_path: Path) -> None:
    row = "MI300X,PASS,1,1,1,1"
    with pytest.raises(InputError, match="none of the columns SeqLen, B, M"):
        primus_turbo.read(write(tmp_path / "x.csv", f"GPU,{RESULTS}\n", row))
    with pytest.raises(InputError, match="unknown data type fp4"):
        primus_turbo.read(write(tmp_path / "y.csv", f"M,Dtype,GPU,{RESULTS}\n", f"1,fp4,{row}"))
    with pytest.raises(InputError, match="lacks the columns"):
        primus_turbo.read(write(tmp_path / "z.csv", "M,N,K\n", "1,2,3"))


@pytest.mark.reference
def test_reference_table(reference: Path) -> None:
    frame = validate(primus_turbo.read(reference / "kernels" / "primus_turbo_all.csv"))
    # 4718 rows, less 23 that failed and 30 that name no GPU, both ways.
    assert len(frame) == 2 * (4718 - 23 - 30)
    bf16 = frame[frame["dtype"] == "bf16"]
    share = bf16["flops"] / bf16["latency_s"] / load_gpu("mi300x").bf16_flops
    assert share.max() < 0.55
    assert 0.3 < share.median() < 0.5
