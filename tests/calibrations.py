"""A campaign whose layers and overlaps take what known coefficients say."""

from itertools import product

import numpy as np
import pandas as pd

from predictor.datasets.sources.campaign import read_layers
from predictor.step.calibration import Coefficients
from predictor.timing.analytic import AnalyticTimer
from predictor.training.calibrate import timed_layers

TRUE = Coefficients(
    kernel_forward=1.4, kernel_backward=0.8, host_forward_s=30e-6, host_backward_s=20e-6,
    tensor_forward_s=400e-6, tensor_backward_s=300e-6, tensor_collectives=2.0,
    gather_layer_s=1e-3, gather_s_per_byte=3e-10, shard_layer_s=2e-3, shard_s_per_byte=2e-10,
    bucket_s=1.5e-3, bucket_s_per_byte=4e-10, overlap_slowdown=1.9)


def _layers():
    rows = []
    kinds = product(("none", "ddp", "fsdp2", "tensor"), (256, 512, 1024), (1, 4), ("llama", "gpt"))
    for point, (parallel, hidden, batch, style) in enumerate(kinds):
        rows += [{
            "point": str(point), "gpu": "cpu-core", "style": style, "hidden_size": hidden,
            "ffn_hidden_size": 2 * hidden, "num_attention_heads": 8, "seq_len": 128,
            "micro_batch_size": batch, "num_query_groups": 0, "num_layers": 1, "vocab_size": 0,
            "num_experts": 0, "moe_router_topk": 0, "dtype": "fp32", "parallel": parallel,
            "ranks": 2, "ranks_per_node": 2, "intra_link": "gloo", "inter_link": "",
            "pass": way, "latency_s": 1.0} for way in ("fwd", "bwd")]
    return pd.DataFrame(rows)


def campaign(folder):
    """Write the campaign into a new folder and return it."""
    folder.mkdir()
    (folder / "environment.json").write_text("{}")
    frame = _layers()
    frame.to_parquet(folder / "layers.parquet")
    for name, kind in timed_layers(read_layers(folder), AnalyticTimer()).items():
        at = frame["parallel"] == name
        for way, seconds in zip(("fwd", "bwd"), kind.own_s(TRUE), strict=True):
            frame.loc[at & (frame["pass"] == way), "latency_s"] = seconds
    frame.to_parquet(folder / "layers.parquet")
    alone = np.array([1.0, 2.0, 3.0, 4.0])
    pd.DataFrame({"gpu": "cpu-core", "collective_alone_s": alone, "compute_alone_s": 2.0,
                  "together_s": np.maximum(alone, 2.0) + 0.9 * np.minimum(alone, 2.0)}
                 ).to_parquet(folder / "overlaps.parquet")
    return folder
