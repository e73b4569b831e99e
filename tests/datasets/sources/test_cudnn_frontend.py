from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from predictor.datasets.kernel_schema import validate
from predictor.datasets.kernels import measurements
from predictor.datasets.physical import reasons
from predictor.datasets.sources.cudnn_frontend import read
from predictor.spec.errors import InputError

START = ("model_name,backend,data_type,attn_mask,batch_size,q_seqlen,kv_seqlen,num_q_heads,"
         "num_kv_heads,head_dim_qk,head_dim_vo,profile_pass,deterministic_bwd,")
END = "success,error_message,gpu_name,cudnn_version,cudnn_backend_version\n"
BOTH = (START + "fwd_time_ms,bwd_time_ms,sliding_window_size," + END
        + "dsv3,cudnn,bfloat16,top_left,1,4096,4096,128,128,192,128,both,True,1.5,5.0,,True,,"
          "NVIDIA GB200,1.19.0,91901\n"
        + 'dsv3,cudnn,fp8,top_left,1,4096,4096,128,128,192,128,both,True,inf,inf,,False,'
          '"failed:\nstderr, many lines",,,\n')
EACH = (START + "time_ms,sliding_window_size," + END
        + "gpt_oss,cudnn,mxfp8,top_left,2,4096,4096,64,8,64,64,fwd,False,2.5,128,True,,"
          "NVIDIA GB300,1.21.1,92200.0\n"
        + "gpt_oss,cudnn,mxfp8,top_left,2,4096,4096,64,8,64,64,bwd,False,3.5,128,True,,"
          "NVIDIA GB300,1.21.1,92200.0\n"
        + "wan,cudnn,bfloat16,no_mask,1,7800,7800,40,40,128,128,fwd,False,0.8,,True,,"
          "NVIDIA GB300,1.21.1,92200.0\n")
OLDER = ("batch_size,q_seqlen,kv_seqlen,num_q_heads,num_kv_heads,head_dim,is_causal,{},"
         "forward_time,backward_time,fwd_tflops_per_sec,bwd_tflops_per_sec\n"
         "1,512,512,128,8,128,True,{},0.13,0.494,66.28,43.5\n"
         "1,512,512,128,8,128,True,{},inf,inf,0.0,0.0\n")
NORMS = ("norm_name,norm_type,backend,data_type,N,C,has_bias,profile_pass,fwd_time_ms,bwd_time_ms,"
         + END +
         "llama,rms_norm,pytorch,bfloat16,16384,4096,False,both,0.05,0.178,True,,NVIDIA H200,"
         "1.19.0,91901.0\n")


@pytest.fixture
def table(tmp_path: Path) -> pd.DataFrame:
    files = {
        "sdpa/results/both.csv": BOTH, "sdpa/results/each.csv": EACH, "norms/results/n.csv": NORMS,
        "sdpa/artifacts/sdpa_bf16_benchmark_results_NVIDIA_B200.csv":
            OLDER.format("backend", "pyt_cudnn", "pyt_math").replace("inf", "0.7"),
        "sdpa/artifacts/sdpa_fp8_benchmark_results_NVIDIA_B200.csv":
            OLDER.format("precision", "fp8", "bf16"),
        "Llama/artifacts/b200_training_timing.csv": "backend,batch_size,time\nCUDNN,24,0.2\n",
    }
    for name, text in files.items():
        path = tmp_path / "benchmark" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read(tmp_path)


def rows_of(table: pd.DataFrame, file: str) -> list[dict[str, object]]:
    return table[table["file"].str.endswith(file)].to_dict("records")


def test_one_row_for_both_passes_becomes_two(table: pd.DataFrame) -> None:
    forward, backward = rows_of(table, "both.csv")
    assert (forward["pass"], backward["pass"]) == ("fwd", "bwd")
    assert backward["latency_s"] == pytest.approx(5e-3)
    assert (forward["head_dim"], forward["head_dim_v"]) == (192, 128)
    assert forward["impl"] == "cudnn_det" and forward["version"] == "9.19.1"
    assert forward["gpu"] == "gb200" and forward["causal"] == "1"


def test_one_row_per_pass_stays_one(table: pd.DataFrame) -> None:
    rows = rows_of(table, "each.csv")
    assert sorted(row["pass"] for row in rows) == ["bwd", "fwd", "fwd"]  # type: ignore[type-var]
    windowed = next(row for row in rows if row["pass"] == "bwd")
    assert (windowed["window"], windowed["dtype"], windowed["impl"]) == (128, "fp8", "cudnn mxfp8")
    dense = next(row for row in rows if row["seq"] == 7800)
    assert dense["causal"] == "0" and dense["impl"] == "cudnn"


def test_the_older_layout_names_its_gpu_in_the_file_name(table: pd.DataFrame) -> None:
    rows = rows_of(table, "sdpa_fp8_benchmark_results_NVIDIA_B200.csv")
    assert [row["gpu"] for row in rows] == ["b200-sxm"] * 2
    assert [row["dtype"] for row in rows] == ["fp8"] * 2  # what took forever is left out
    assert rows[0]["impl"] == "cudnn_fe_fp8" and rows[0]["software"] == "cudnn"


def test_attention_that_is_no_kernel_is_left_out(table: pd.DataFrame) -> None:
    rows = rows_of(table, "sdpa_bf16_benchmark_results_NVIDIA_B200.csv")
    assert {row["impl"] for row in rows} == {"pyt_cudnn"}
    assert {row["software"] for row in rows} == {"torch"}


def test_norms_have_rows_and_their_length(table: pd.DataFrame) -> None:
    forward, backward = rows_of(table, "n.csv")
    assert (forward["op"], forward["m"], forward["n"]) == ("rmsnorm", 16384, 4096)
    assert backward["latency_s"] == pytest.approx(178e-6) and backward["gpu"] == "h200-sxm"


def test_whole_steps_are_passed_over_and_the_rest_obeys_the_schema(table: pd.DataFrame) -> None:
    pytest.importorskip("pandera")
    validate(table)
    assert len(table) == 2 + 3 + 2 + 2 + 2
    assert measurements(table).refused == ()


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cudnn-frontend"):
        read(tmp_path)


@pytest.mark.reference
def test_the_published_results_are_possible(reference: Path) -> None:
    found = measurements(read(reference / "kernels" / "cudnn-frontend"))
    assert len(found) > 1500 and found.refused == ()
    assert set(reasons(found)) == {""}
    assert {"gb200", "gb300", "h200-sxm", "b200-sxm"} == set(found.gpu)
