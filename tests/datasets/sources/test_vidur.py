from pathlib import Path

import pandas as pd
import pytest

from predictor.datasets.kernel_schema import validate
from predictor.datasets.sources import vidur
from predictor.spec.errors import InputError

GATED = {"n_head": 32, "n_kv_head": 8, "n_embd": 4096, "n_expanded_embd": 12288,
         "vocab_size": 32768, "use_gated_mlp": True, "num_tokens": 512,
         "num_tensor_parallel_workers": 2}
TIMES = {"emb": 0.2, "input_layernorm": 0.1, "attn_pre_proj": 1.9, "attn_rope": 0.15,
         "attn_post_proj": 0.6, "post_attention_layernorm": 0.11, "mlp_up_proj": 3.3,
         "mlp_act": 0.26, "mlp_down_proj": 1.6, "add": 0.05}
PREFILL = {"n_embd": 4096, "n_q_head": 32, "n_kv_head": 8, "block_size": 16,
           "num_tensor_parallel_workers": 2, "max_model_len": 4096, "batch_size": 1,
           "prefill_chunk_size": 512, "kv_cache_size": 1024, "is_prefill": True,
           "attention_backend": "AttentionBackend.FLASHINFER",
           "time_stats.attn_prefill.median": 0.4, "time_stats.attn_decode.median": None}


def write(root: Path, name: str, *rows: dict[str, object], model: str = "llama/Llama-x",
          gpu: str = "a100") -> Path:
    file = root / gpu / model / name
    file.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(list(rows)).to_csv(file, index=False)
    return file


def mlp(**changes: object) -> dict[str, object]:
    spread = {f"time_stats.{name}.{what}": value * share for name, value in TIMES.items()
              for what, share in (("min", 0.9), ("max", 1.2), ("median", 1.0))}
    return spread | GATED | changes


def test_each_operation_of_a_gated_layer(tmp_path: Path) -> None:
    frame = validate(vidur.read(write(tmp_path, "mlp.csv", mlp())))
    shapes = {row["impl"]: (row["op"], row["n"], row["k"]) for row in frame.to_dict("records")}
    assert len(frame) == len(TIMES)
    # Half of (32 + 2 * 8) heads of 128, and so on: everything but the hidden size is split.
    assert shapes["attn_pre_proj"] == ("linear", 3072, 4096)
    assert shapes["attn_post_proj"] == ("linear", 4096, 2048)
    assert shapes["mlp_up_proj"] == ("linear", 12288, 4096)
    assert shapes["mlp_down_proj"] == ("linear", 4096, 6144)
    assert shapes["mlp_act"][:2] == ("swiglu", 6144)
    assert shapes["input_layernorm"][:2] == shapes["post_attention_layernorm"][:2] == (
        "rmsnorm", 4096)
    assert shapes["emb masked"] == ("embedding", 4096, 16384)
    assert shapes["add"][:2] == ("res_add", 4096)
    rope = frame[frame["op"] == "rope"].iloc[0]
    assert (rope["n"], rope["heads"], rope["kv_heads"], rope["head_dim"]) == (2560, 16, 4, 128)
    assert set(frame["m"]) == {512}
    assert set(frame["tp"]) == {2}


def test_times_are_milliseconds_of_kernels(tmp_path: Path) -> None:
    frame = vidur.read(write(tmp_path, "mlp.csv", mlp()))
    row = frame[frame["impl"] == "attn_pre_proj"].iloc[0]
    assert row["latency_s"] == pytest.approx(1.9e-3)
    assert row["flops"] == 2 * 512 * 3072 * 4096
    assert (row["gpu"], row["dtype"], row["timing_kind"]) == ("a100-sxm-80gb", "fp16", "kernel")
    assert (row["file"], row["software"]) == ("a100/llama/Llama-x/mlp.csv", "vllm")


def test_layer_without_a_gated_mlp_has_biases_layernorm_and_gelu(tmp_path: Path) -> None:
    plain = mlp(use_gated_mlp=False, num_tensor_parallel_workers=1)
    plain["time_stats.post_attention_layernorm.median"] = None
    frame = vidur.read(write(tmp_path, "mlp.csv", plain, model="microsoft/phi-2"))
    shapes = {row["impl"]: (row["op"], row["n"]) for row in frame.to_dict("records")}
    assert shapes == {
        "emb": ("embedding", 4096), "input_layernorm": ("layernorm", 4096),
        "attn_pre_proj": ("linear_bias", 6144), "attn_rope": ("rope", 5120),
        "attn_post_proj": ("linear", 4096), "mlp_up_proj": ("linear_bias", 12288),
        "mlp_act": ("gelu", 12288), "mlp_down_proj": ("linear", 4096),
        "add of three": ("res_add", 4096)}


def test_qwen_has_a_bias_in_its_first_projection_only(tmp_path: Path) -> None:
    frame = vidur.read(write(tmp_path, "mlp.csv", mlp(), model="Qwen/Qwen-x"))
    assert list(frame[frame["op"] == "linear_bias"]["impl"]) == ["attn_pre_proj"]


def test_prefill_attends_to_the_cache_and_decoding_is_left_out(tmp_path: Path) -> None:
    decode = PREFILL | {"is_prefill": False, "prefill_chunk_size": 0,
                        "time_stats.attn_decode.median": 0.1}
    frame = validate(vidur.read(write(tmp_path, "attention.csv", PREFILL, decode, gpu="h100")))
    assert len(frame) == 1
    row = frame.iloc[0]
    assert (row["gpu"], row["op"], row["pass"], row["causal"]) == (
        "h100-sxm", "attention", "fwd", "1")
    assert (row["batch"], row["seq"], row["seq_kv"]) == (1, 512, 1536)
    assert (row["heads"], row["kv_heads"], row["head_dim"], row["head_dim_v"]) == (
        16, 4, 128, 128)
    assert row["impl"] == "AttentionBackend.FLASHINFER"
    assert row["latency_s"] == pytest.approx(0.4e-3)


def test_folder_reads_every_file_below_it(tmp_path: Path) -> None:
    write(tmp_path, "mlp.csv", mlp())
    write(tmp_path, "attention.csv", PREFILL, gpu="a40")
    frame = vidur.read(tmp_path)
    assert len(frame) == len(TIMES) + 1
    assert set(frame["gpu"]) == {"a100-sxm-80gb", "a40"}


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"lacks the columns .*time_stats.attn_prefill.median"):
        vidur.read(write(tmp_path, "attention.csv", {"n_embd": 1}))
    with pytest.raises(InputError, match=r"other\.csv is not a profile"):
        vidur.read(write(tmp_path, "other.csv", mlp()))
    with pytest.raises(InputError, match="no GPU is called 'abacus'"):
        vidur.read(write(tmp_path, "mlp.csv", mlp(), gpu="abacus"))
    (tmp_path / "nothing").mkdir()
    with pytest.raises(InputError, match=r"no mlp\.csv or attention\.csv"):
        vidur.read(tmp_path / "nothing")
