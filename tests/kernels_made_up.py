"""A small table of kernels whose times follow a simple law, in the kernels_long layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

GPUS = {"A100-SXM4-80GB": 230e12, "H100-SXM5-80GB": 600e12, "B200": 1500e12}
"""Sustained rates of the made-up products."""


def linear_layers(seed: int = 0, rows: int = 120) -> pd.DataFrame:
    """Return forward and backward linear layers of random sizes on three GPUs."""
    rng = np.random.default_rng(seed)
    m, n, k = 2.0 ** rng.integers(9, 14, size=(3, rows))
    frames = []
    for gpu, rate in GPUS.items():
        for way, share in (("fwd", 1.0), ("bwd", 2.1)):
            seconds = (2 * m * n * k / rate + 2e-5) * share * np.exp(rng.normal(0, 0.02, rows))
            frames.append(pd.DataFrame({
                "source": "vidur" if gpu.startswith("A100") else "estimate-train-time",
                "gpu": gpu, "dtype": "bf16", "op": "linear", "pass": way, "impl": "made-up",
                "latency_us": seconds * 1e6, "batch": 1.0, "m": m, "n": n, "k": k, "flag": ""}))
    return pd.concat(frames, ignore_index=True)


def data_folder(path: Path) -> Path:
    """Write the table where a training looks for it and return the data folder."""
    (path / "kernels").mkdir(parents=True)
    linear_layers().to_parquet(path / "kernels" / "kernels_long.parquet")
    return path
