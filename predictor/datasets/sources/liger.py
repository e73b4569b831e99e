"""Reads the speed benchmarks of Liger-Kernel (linkedin/Liger-Kernel, BSD-2-Clause).

Layout: ``benchmark/data/all_benchmark_data.csv``, or several of them in one table with a column
``file``; times are medians in milliseconds of eager calls between two events with a cold cache
(``triton.testing.do_bench``). Launches are included: a backward pass of less than about 0.14 ms
is bound by them and measures the host. Read are the kernels that a training step has; a whole MLP
(``swiglu``, ``geglu``) is not the activation alone and is left out, as are the backward rows of
``megatron_*``, which repeat the forward pass inside the time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.datasets.kernel_schema import empty
from predictor.datasets.sources.frames import catalogue_names, numbers, open_table, tidy, words
from predictor.spec.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

SOURCE = "liger"
LICENCE = "BSD-2-Clause"
LAUNCH_BOUND_S = 0.14e-3
"""Shorter backward passes of eager PyTorch measure the launches; such rows are flagged."""
_NEEDED = ("kernel_name", "kernel_provider", "kernel_operation_mode", "metric_name",
           "metric_unit", "x_name", "x_value", "y_value_50", "extra_benchmark_config_str",
           "gpu_name", "liger_version")
_PASSES = {"forward": "fwd", "backward": "bwd"}
"""``full`` is both in one time, ``no-grad-forward`` a pass that saves nothing for a backward."""
_DTYPES = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16"}
_OPERATIONS = {"rms_norm": "rmsnorm", "layer_norm": "layernorm", "softmax": "softmax",
               "rope": "rope", "cross_entropy": "cross_entropy", "embedding": "embedding",
               "megatron_rms_norm": "rmsnorm", "megatron_swiglu": "swiglu",
               "megatron_cross_entropy": "cross_entropy"}
_PLAIN = {"cross_entropy": "fp32", "megatron_rms_norm": "bf16", "megatron_swiglu": "bf16",
          "megatron_cross_entropy": "bf16"}
"""Types of the benchmarks that do not name theirs, from their scripts."""
_WHOLE_PASS = "megatron_"
_OWNERS = ["liger", "megatron"]
_SPEED = ("speed", "ms")
_MILLI = 1e-3


def read(path: Path) -> pd.DataFrame:
    """Return the tidy table of forward and backward rows.

    Flags: ``launch-bound`` (see :data:`LAUNCH_BOUND_S`), ``random-gradient`` for the backward of
    ``embedding``, which draws its gradient inside the time, and ``gradient-in-forward`` for
    Liger's cross-entropy, whose forward pass already computes the gradient.

    Raises
    ------
    InputError
        When the file cannot be read, or a row has a configuration of another kind.
    """
    path = Path(path)
    table = open_table(path, _NEEDED, "Liger-Kernel's benchmarks")
    name, mode = words(table, "kernel_name"), words(table, "kernel_operation_mode")
    repeats = name.str.startswith(_WHOLE_PASS) & (mode == "backward")
    speed = (table["metric_name"] == _SPEED[0]) & (table["metric_unit"] == _SPEED[1])
    table = table[speed & name.isin(list(_OPERATIONS)) & mode.isin(list(_PASSES)) & ~repeats]
    if not len(table):
        return empty()
    name, provider = words(table, "kernel_name"), words(table, "kernel_provider")
    passes = words(table, "kernel_operation_mode").map(_PASSES)
    op, seconds = name.map(_OPERATIONS), numbers(table, "y_value_50") * _MILLI
    cells = {
        "source": SOURCE, "licence": LICENCE,
        "file": words(table, "file") if "file" in table else path.name, "timing_kind": "event",
        "gpu": catalogue_names(table["gpu_name"]), "software": _software(provider),
        "version": words(table, "liger_version"), "impl": name + " " + provider, "op": op,
        "pass": passes, "latency_s": seconds, "flag": _flags(op, provider, passes, seconds)}
    return tidy(cells | _shapes(table, name), table.index)


def _software(provider: pd.Series[Any]) -> Any:
    """Return whose kernel ran; Hugging Face's modules are plain PyTorch."""
    cases = [provider.str.startswith(name) for name in _OWNERS]
    return np.select(cases, _OWNERS, "torch")


def _flags(op: pd.Series[Any], provider: pd.Series[Any], passes: pd.Series[Any],
           seconds: pd.Series[Any]) -> list[str]:
    backward = passes == "bwd"
    ours = (op == "cross_entropy") & provider.str.startswith("liger")
    marks = {"launch-bound": backward & (seconds < LAUNCH_BOUND_S),
             "random-gradient": backward & (op == "embedding"), "gradient-in-forward": ours}
    return [" ".join(mark for mark, row in zip(marks, rows, strict=True) if row)
            for rows in zip(*marks.values(), strict=True)]


def _shapes(table: pd.DataFrame, name: pd.Series[Any]) -> dict[str, Any]:
    """Return the columns of shapes and the data type, from each row's swept and fixed values.

    Configurations repeat in thousands of rows: each is taken apart once.
    """
    keys = list(zip(name, words(table, "x_name"), words(table, "x_value"),
                    words(table, "extra_benchmark_config_str"), strict=True))
    known = {key: _shape(*key) for key in dict.fromkeys(keys)}
    columns = dict.fromkeys(column for shape in known.values() for column in shape)
    return {column: [known[key].get(column) for key in keys] for column in columns}


def _shape(name: str, swept: str, value: str, config: str) -> dict[str, Any]:
    try:
        given = json.loads(config)
        given = given | {swept: float(value)}
        dtype = _DTYPES[given["dtype"]] if "dtype" in given else _PLAIN[name]
        return _DIMENSIONS[name](given) | {"dtype": dtype}
    except (ValueError, KeyError, TypeError) as error:
        raise InputError.of(
            "liger-configuration", f"{name} with {swept} = {value} and {config} lacks or misstates "
            f"{error}", "give the table as Liger-Kernel's benchmarks wrote it",
            where="extra_benchmark_config_str") from None


def _rope(given: dict[str, Any]) -> dict[str, Any]:
    """One sample; queries and keys are rotated, so that a token has a row of both."""
    hidden = given["H"] if "H" in given else given["hidden_size"]
    seq = given["T"] if "T" in given else given["seq_len"]
    heads, groups = given["num_q_heads"], given["num_kv_heads"]
    width = hidden // heads
    return {"batch": 1, "m": seq, "n": (heads + groups) * width, "seq": seq, "heads": heads,
            "kv_heads": groups, "head_dim": width}


_DIMENSIONS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "rms_norm": lambda given: {"m": given["M"], "n": given["H"]},
    "layer_norm": lambda given: {"m": given["M"], "n": given["N"]},
    "softmax": lambda given: {"m": given["M"], "n": given["N"]},
    "rope": _rope,
    "cross_entropy": lambda given: {"m": given["B"] * given["T"], "n": given["V"]},
    "embedding": lambda given: {"m": given["B"] * given["T"], "n": given["D"], "k": given["V"]},
    "megatron_rms_norm": lambda given: {"m": given["S"] * given["B"], "n": given["H"]},
    "megatron_swiglu": lambda given: {"m": given["S"] * given["B"], "n": given["ffn_local"]},
    "megatron_cross_entropy": lambda given: {
        "m": given["S"] * given["B"], "n": given["V"], "tp": given.get("TP", 1)},
}
"""Rows and elements from the configuration, as the benchmarks' scripts build their tensors."""
