"""Reads the published benchmark results of cudnn-frontend (MIT).

Layout: ``benchmark/**/*.csv`` with milliseconds. Attention comes in three layouts (one row for both
passes, one row per pass, and an older one named after the GPU) and norms in one; files of whole
training steps and of rates without a GPU are passed over.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.datasets.kernel_rows import known_gpu
from predictor.datasets.kernel_schema import normalise, stack
from predictor.spec.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    Times = dict[str, pd.Series[Any]]

SOURCE = "cudnn-frontend"
LICENCE = "MIT"
_GPU_IN_NAME = re.compile(r"results_(?P<gpu>NVIDIA_\w+)\.csv")
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "fp8": "fp8", "mxfp8": "fp8", "bf16": "bf16"}
_SOFTWARE = {"cudnn": "cudnn", "cudnn_fe": "cudnn", "cudnn_fe_fp8": "cudnn", "pytorch": "torch",
             "torch_compile": "torch", "flash_attention": "flash-attn"}
"""Library of a backend; other names are PyTorch's own choices (``pyt_...``)."""
_UNFUSED = ("pyt_math",)
"""Backends that run attention as a chain of products and a softmax: no attention kernel."""
_NORMS = {"rms_norm": "rmsnorm", "layer_norm": "layernorm"}


def read(folder: Path) -> pd.DataFrame:
    """Return the tidy table of attention and norms below ``folder``.

    Left out: runs that failed or gave no time, and attention that was not one fused kernel.

    Raises
    ------
    InputError
        When no file has one of the layouts.
    """
    root = Path(folder)
    frames = [frame for path in sorted(root.rglob("*.csv"))
              if (frame := _file(path, root)) is not None]
    if not frames:
        raise InputError.of("cudnn-frontend-layout", f"no attention or norm results in {root}",
                            "give a checkout of cudnn-frontend or its benchmark folder")
    return stack(frames)


def _file(path: Path, root: Path) -> pd.DataFrame | None:
    import pandas as pd

    table = pd.read_csv(path, engine="python")  # failed runs quote error texts of many lines
    found = _GPU_IN_NAME.search(path.name)
    if "attn_mask" in table:
        cells, times = _attention(table)
    elif "norm_type" in table:
        cells, times = _norms(table)
    elif "is_causal" in table and found:
        cells, times = _older_attention(table, found["gpu"].replace("_", " "))
    else:
        return None
    cells |= {"source": SOURCE, "licence": LICENCE, "timing_kind": "kernel",
              "file": path.relative_to(root).as_posix()}
    rows = pd.concat([pd.DataFrame(cells | {"pass": way, "latency_s": milliseconds * 1e-3},
                                   index=table.index) for way, milliseconds in times.items()])
    usable = np.isfinite(rows["latency_s"]) & (rows["latency_s"] > 0) & rows["dtype"].notna()
    return normalise(rows[usable & (rows["gpu"] != "") & ~rows["impl"].isin(_UNFUSED)])


def _attention(table: pd.DataFrame) -> tuple[dict[str, Any], Times]:
    causal = ~table["attn_mask"].astype(str).str.contains("no")
    window = table.get("sliding_window_size", np.nan)
    cells = _shapes(table) | _ran(table) | {
        "causal": np.where(causal, "1", "0"), "head_dim": table["head_dim_qk"],
        "head_dim_v": table["head_dim_vo"], "window": window}
    determined = np.where(table["deterministic_bwd"].astype(str) == "True", "_det", "")
    cells["impl"] = cells["impl"] + determined
    return cells, _passes(table)


def _older_attention(table: pd.DataFrame, gpu: str) -> tuple[dict[str, Any], Times]:
    backend = table["backend"] if "backend" in table else table["precision"].map(
        lambda precision: "cudnn_fe" + ("_fp8" if precision == "fp8" else ""))
    cells = _shapes(table) | {
        "gpu": _gpu(gpu), "software": _software(backend), "impl": backend,
        "dtype": np.where(backend.str.endswith("_fp8"), "fp8", "bf16"),
        "causal": np.where(table["is_causal"].astype(str) == "True", "1", "0"),
        "head_dim": table["head_dim"], "head_dim_v": table["head_dim"]}
    return cells, {"fwd": table["forward_time"], "bwd": table["backward_time"]}


def _shapes(table: pd.DataFrame) -> dict[str, Any]:
    return {"op": "attention", "batch": table["batch_size"], "seq": table["q_seqlen"],
            "seq_kv": table["kv_seqlen"], "heads": table["num_q_heads"],
            "kv_heads": table["num_kv_heads"]}


def _norms(table: pd.DataFrame) -> tuple[dict[str, Any], Times]:
    cells = _ran(table) | {"op": table["norm_type"].map(_NORMS), "m": table["N"], "n": table["C"]}
    return cells, _passes(table)


def _ran(table: pd.DataFrame) -> dict[str, Any]:
    """Return GPU, library and type; runs that failed get no GPU."""
    worked = table["success"].astype(str) == "True"
    # fp8 with one scale per tensor and with one per block of 32 are other kernels.
    block = np.where(table["data_type"] == "mxfp8", " mxfp8", "")
    return {"gpu": table["gpu_name"].where(worked).map(_gpu, na_action="ignore").fillna(""),
            "software": _software(table["backend"]), "impl": table["backend"] + block,
            "version": table["cudnn_backend_version"].map(_version, na_action="ignore"),
            "dtype": table["data_type"].map(_DTYPES)}


def _passes(table: pd.DataFrame) -> Times:
    if "time_ms" not in table:
        return {"fwd": table["fwd_time_ms"], "bwd": table["bwd_time_ms"]}
    return {way: table["time_ms"].where(table["profile_pass"] == way) for way in ("fwd", "bwd")}


def _gpu(name: str) -> str:
    found = known_gpu(name)
    return name if found is None else found.name


def _software(backend: pd.Series[Any]) -> pd.Series[Any]:
    return backend.map(lambda name: _SOFTWARE.get(name, "torch"))


def _version(number: float) -> str:
    """Return cuDNN's number as people write it: 92200 is 9.22.0."""
    whole = int(float(number))
    return f"{whole // 10000}.{whole // 100 % 100}.{whole % 100}"
