import json
from pathlib import Path

import pandas as pd
import pytest

from predictor.catalog import load_gpu
from predictor.datasets.kernel_schema import validate
from predictor.datasets.sources import liger
from predictor.spec.errors import InputError

ROW = {"kernel_name": "rms_norm", "kernel_provider": "liger", "kernel_operation_mode": "forward",
       "metric_name": "speed", "metric_unit": "ms", "x_name": "H", "x_label": "hidden size",
       "x_value": 4096, "y_value_50": 0.5, "y_value_20": 0.4, "y_value_80": 0.6,
       "extra_benchmark_config_str": json.dumps(
           {"M": 2048, "dtype": "torch.bfloat16", "eps": 1e-6}),
       "gpu_name": "NVIDIA A100-SXM4-80GB", "timestamp": "2024-09-03 15:31:39",
       "liger_version": "0.2.1"}


def case(name: str, swept: str, value: int, config: dict[str, object],
         **changes: object) -> dict[str, object]:
    return ROW | {"kernel_name": name, "x_name": swept, "x_value": value,
                  "extra_benchmark_config_str": json.dumps(config)} | changes


def write(path: Path, *rows: dict[str, object]) -> Path:
    file = path / "all_benchmark_data.csv"
    pd.DataFrame(list(rows)).to_csv(file, index=False)
    return file


def test_median_of_a_forward_pass(tmp_path: Path) -> None:
    frame = validate(liger.read(write(tmp_path, ROW)))
    row = frame.iloc[0]
    assert (row["op"], row["pass"], row["dtype"], row["m"], row["n"]) == (
        "rmsnorm", "fwd", "bf16", 2048, 4096)
    assert row["latency_s"] == pytest.approx(0.5e-3)
    assert (row["gpu"], row["software"], row["version"]) == ("a100-sxm-80gb", "liger", "0.2.1")
    assert (row["impl"], row["timing_kind"], row["licence"], row["file"]) == (
        "rms_norm liger", "event", "BSD-2-Clause", "all_benchmark_data.csv")


def test_shapes_follow_the_benchmarks_scripts(tmp_path: Path) -> None:
    heads: dict[str, object] = {
        "dtype": "torch.bfloat16", "num_q_heads": 32, "num_kv_heads": 8}
    frame = validate(liger.read(write(
        tmp_path, case("rope", "H", 2048, heads | {"seq_len": 512}),
        case("rope", "T", 1024, heads | {"hidden_size": 8192}),
        case("cross_entropy", "V", 32768, {"B": 8, "T": 2048}, kernel_provider="huggingface"),
        case("embedding", "V", 1024, {"B": 32, "T": 512, "D": 768, "dtype": "torch.float32"}),
        case("megatron_swiglu", "ffn_local", 4096, {"S": 2048, "B": 4},
             kernel_provider="megatron"),
        case("softmax", "N", 256, {"M": 2048, "dtype": "torch.float32"}),
        case("megatron_cross_entropy", "V", 4096, {"S": 2048, "B": 4, "TP": 2}))))
    found = [(row["op"], row["m"], row["n"], row["dtype"], row["software"])
             for row in frame.to_dict("records")]
    assert found == [
        ("rope", 512, 40 * 64, "bf16", "liger"), ("rope", 1024, 40 * 256, "bf16", "liger"),
        ("cross_entropy", 16384, 32768, "fp32", "torch"),
        ("embedding", 16384, 768, "fp32", "liger"),
        ("swiglu", 8192, 4096, "bf16", "megatron"), ("softmax", 2048, 256, "fp32", "liger"),
        ("cross_entropy", 8192, 4096, "bf16", "liger")]
    assert (frame["heads"][0], frame["kv_heads"][0], frame["head_dim"][0]) == (32, 8, 64)
    assert frame["k"][3] == 1024
    assert frame["tp"][6] == 2


def test_only_separate_passes_of_single_kernels_are_read(tmp_path: Path) -> None:
    whole = {"B": 4, "hidden_size": 64, "intermediate_size": 128, "dtype": "torch.bfloat16"}
    file = write(tmp_path, ROW | {"kernel_operation_mode": "full"},
                 ROW | {"kernel_operation_mode": "no-grad-forward"},
                 ROW | {"metric_name": "memory", "metric_unit": "MB"},
                 case("swiglu", "T", 1024, whole), case("kl_div", "V", 1024, {"B": 8}),
                 case("megatron_rms_norm", "H", 1024, {"S": 8, "B": 1},
                      kernel_operation_mode="backward"))
    assert len(liger.read(file)) == 0


def test_flags_say_what_is_in_the_time(tmp_path: Path) -> None:
    table = {"B": 8, "T": 16, "D": 64, "dtype": "torch.float32"}
    frame = liger.read(write(
        tmp_path, ROW | {"kernel_operation_mode": "backward", "y_value_50": 0.13},
        ROW | {"kernel_operation_mode": "backward", "y_value_50": 0.15},
        ROW | {"y_value_50": 0.02},
        case("embedding", "V", 1024, table, kernel_operation_mode="backward", y_value_50=0.1),
        case("cross_entropy", "V", 1024, {"B": 8, "T": 16}),
        case("cross_entropy", "V", 1024, {"B": 8, "T": 16}, kernel_provider="huggingface")))
    assert list(frame["flag"]) == ["launch-bound", "", "", "launch-bound random-gradient",
                                   "gradient-in-forward", ""]


@pytest.mark.parametrize(("config", "named"), [
    ('{"M": 2048, "dtype": "torch.int8"}', "torch.int8"),
    ('{"dtype": "torch.bfloat16"}', "'M'"), ("no json", "Expecting value"), ("[1]", "rms_norm")])
def test_configuration_of_another_kind_is_refused(
        tmp_path: Path, config: str, named: str) -> None:
    with pytest.raises(InputError, match=named) as caught:
        liger.read(write(tmp_path, ROW | {"extra_benchmark_config_str": config}))
    assert caught.value.problems[0].rule == "liger-configuration"


@pytest.mark.reference
def test_reference_table(reference: Path) -> None:
    frame = validate(liger.read(reference / "kernels" / "liger_speed.parquet"))
    assert len(frame) == 7726
    fused = frame[(frame["op"] == "rope") & (frame["software"] == "liger")
                  & (frame["latency_s"] > 0.2e-3)]
    bandwidth = fused["gpu"].map(lambda gpu: load_gpu(gpu).memory_bandwidth_bytes_per_s)
    # Read and written once, in bf16, by one kernel.
    share = 2 * 2 * fused["m"] * fused["n"] / fused["latency_s"] / bandwidth
    assert len(fused) == 60
    assert share.between(0.7, 0.9).all()
