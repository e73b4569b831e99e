"""Brings tables of measured kernels into one schema (see predictor.datasets.kernels)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

SYSTEMS = {"a100_sxm": "A100-SXM4-80GB", "h100_sxm": "H100-SXM5", "h200_sxm": "H200",
           "b200_sxm": "B200", "gb200": "GB200", "b300_sxm": "B300", "gb300": "GB300",
           "l40s": "L40S"}
SAMPLE = 4000
"""Rows drawn from each of aiconfigurator's tables."""
LEAST_ROWS = 256
"""Output rows below which a GEMM is a decoding step, which training never runs."""


def all_sources(folder: Path, aiconfigurator: Path | None) -> list[pd.DataFrame]:
    """Return every table found."""
    frames = [pd.read_parquet(folder / "kernels_long.parquet"), simumax(folder),
              cudnn_attention(folder), unfused_attention(folder)]
    if aiconfigurator is not None:
        frames += [aiconfigurator_gemm(aiconfigurator), aiconfigurator_attention(aiconfigurator)]
    return frames


def simumax(folder: Path) -> pd.DataFrame:
    """Dense and grouped GEMM; the achieved rate is turned back into a time."""
    table = pd.read_csv(folder / "simumax_efficiency.csv")
    dense = table[table["op"] == "matmul"]
    frame = pd.DataFrame({
        "gpu": dense["gpu"].replace({"A100-PCIe": "A100-PCIE-80GB"}), "dtype": "bf16",
        "op": "gemm", "pass": "fwd", "batch": dense["b"], "m": dense["m"], "n": dense["n"],
        "k": dense["k"], "source": "simumax"})
    flops = 2 * dense["b"] * dense["m"] * dense["n"] * dense["k"]
    return frame.assign(latency_us=flops / dense["tflops"] / 1e6)


def cudnn_attention(folder: Path) -> pd.DataFrame:
    """cuDNN attention on H200, GB200 and GB300, forward and backward, without windows."""
    root = folder / "cudnn-frontend" / "benchmark" / "sdpa_benchmark_training" / "results"
    frames = []
    for path in sorted(root.rglob("*.csv")):
        table = pd.read_csv(path, engine="python", on_bad_lines="skip")
        table = table[(table["success"].astype(str) == "True") & (table["data_type"] == "bfloat16")
                      & (table["q_seqlen"] == table["kv_seqlen"]) & (table["backend"] == "cudnn")]
        if "sliding_window_size" in table:
            table = table[table["sliding_window_size"].isna()]
        if "time_ms" in table:
            timed = [table.assign(ms=table["time_ms"], way=table["profile_pass"])]
        else:
            timed = [table.assign(ms=table[f"{way}_time_ms"], way=way) for way in ("fwd", "bwd")]
        frames += timed
    table = pd.concat(frames)
    table = table[np.isfinite(table["ms"]) & (table["ms"] > 0)]
    return pd.DataFrame({
        "gpu": table["gpu_name"], "dtype": "bf16", "op": "attention", "pass": table["way"],
        "batch": table["batch_size"], "seq": table["q_seqlen"], "heads": table["num_q_heads"],
        "kv_heads": table["num_kv_heads"], "m": np.nan, "n": np.nan, "k": np.nan,
        "head_dim": (table["head_dim_qk"] + table["head_dim_vo"]) / 2,
        "causal": np.where(table["attn_mask"].str.contains("no"), "0", "1"),
        "latency_us": table["ms"] * 1e3, "source": "cudnn-frontend"})


def unfused_attention(folder: Path) -> pd.DataFrame:
    """Score and context products and the fused softmax between them, fp16, forward."""
    frames = []
    for site, gpu in (("Perlmutter", "A100-SXM4-80GB"), ("Vista", "GH200-120GB")):
        for path in sorted((folder / "estimate-train-time" / site / "operator").glob("*_fp16.csv")):
            table = pd.read_csv(path)
            if path.stem.endswith(("_bmm_fp16", "_baddbmm_fp16")):
                width, length = table["dim"] / table["h"], table["l"]
                scores = path.stem.endswith("_baddbmm_fp16")
                shape = {"op": "bmm", "batch": table["b"] * table["h"] / table["mp"], "m": length,
                         "n": length if scores else width, "k": width if scores else length}
            elif path.stem.endswith("_ScaledUpperTriangMaskedSoftmax_fp16"):
                shape = {"op": "softmax", "n": table["l"],
                         "m": table["b"] * table["h"] / table["mp"] * table["l"]}
            else:
                continue
            frames.append(pd.DataFrame({
                "gpu": gpu, "dtype": "fp16", "pass": "fwd", "latency_us": table["F_dur(us)"],
                "source": "estimate-train-time"} | shape))
    return pd.concat(frames)


def aiconfigurator_gemm(root: Path) -> pd.DataFrame:
    """16-bit GEMMs replayed as CUDA graphs. The 8-bit rows time the cast of the input too."""
    frames = []
    for path in sorted(root.glob("*/gemm/*/*/gemm_perf.parquet")):
        system, _, backend, _ = path.relative_to(root).parts[:4]
        table = pd.read_parquet(path)
        table = table[table["gemm_dtype"].isin(["bfloat16"]) & (table["m"] >= LEAST_ROWS)]
        if system in SYSTEMS:
            frames.append(_sampled(table).assign(
                gpu=SYSTEMS[system], source=f"aiconfigurator-{backend}"))
    return pd.concat(frames).assign(
        op="gemm", dtype="bf16", batch=1.0, latency_us=lambda frame: 1e3 * frame["latency"],
        **{"pass": "fwd"})[["gpu", "source", "op", "dtype", "pass", "batch", "m", "n", "k",
                            "latency_us"]]


def aiconfigurator_attention(root: Path) -> pd.DataFrame:
    """16-bit prefill attention: FlashAttention-3 on Hopper, TensorRT-LLM's on Blackwell."""
    frames = []
    for path in sorted(root.glob("*/attention/sglang/*/context_attention_perf.parquet")):
        system = path.relative_to(root).parts[0]
        table = pd.read_parquet(path)
        kept = table["kernel_source"].isin(["fa3", "trtllm_mha", "flash_attention"])
        for column in ("attn_dtype", "kv_cache_dtype"):
            kept &= table[column] == "bfloat16"
        kept &= (table["step"] == 0) & (table["isl"] >= LEAST_ROWS)
        if "window_size" in table:
            kept &= table["window_size"] <= 0
        if system in SYSTEMS and kept.any():
            frames.append(_sampled(table[kept]).assign(gpu=SYSTEMS[system]))
    table = pd.concat(frames)
    return pd.DataFrame({
        "gpu": table["gpu"], "source": "aiconfigurator-sglang", "op": "attention", "dtype": "bf16",
        "pass": "fwd", "batch": table["batch_size"], "seq": table["isl"],
        "heads": table["num_heads"], "kv_heads": table["num_key_value_heads"],
        "head_dim": table["head_dim"], "causal": "1", "latency_us": 1e3 * table["latency"],
        "m": np.nan, "n": np.nan, "k": np.nan})


def _sampled(table: pd.DataFrame) -> pd.DataFrame:
    return table.sample(min(len(table), SAMPLE), random_state=0)
