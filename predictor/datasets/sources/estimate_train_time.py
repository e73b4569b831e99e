"""Reads the sampled operators of estimate-train-time (arXiv 2509.22832), fp16, MIT.

Layout: ``<site>/operator/<GPU>_<operator>_fp16.csv``, one row per shape with forward and backward
microseconds. ``mp`` is the tensor parallel size, ``b`` samples, ``h`` heads of the whole model,
``l`` tokens and ``dim`` the hidden width; the shapes that follow are those of its own sampling
code. Flash attention was sampled without a causal mask.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.catalog import load_gpu
from predictor.datasets.kernel_schema import normalise, stack
from predictor.spec.errors import InputError, Problem

if TYPE_CHECKING:
    import pandas as pd

    Shapes = Callable[[pd.DataFrame], dict[str, Any]]

SOURCE = "estimate-train-time"
LICENCE = "MIT"
VOCABULARY = 50257
"""GPT-2's; padded to a multiple of 128 on every tensor parallel rank."""
_NAME = re.compile(r"(?P<gpu>.+?)_(?P<operator>.+)_(?P<dtype>fp16|bf16|fp32)\.csv")
_SPANS = frozenset({"RoPE", "RMSlayernorm", "parallel_cross_entropy_128"})
"""Chains timed from start to end: small shapes take a constant 0.2 to 0.6 ms on both machines,
which is the host launching them and no kernel's time. Optimizer steps of stages likewise hold 3 to
4 ms of launches, and ``optimizer`` takes 0.2 ms for every tensor, whatever its size."""


def read(folder: Path) -> pd.DataFrame:
    """Return the tidy table of every operator below ``folder``.

    Raises
    ------
    InputError
        When there are no operator files, or for each file that lacks the columns of its operator.
    """
    root = Path(folder)
    paths = [(path, found) for path in sorted(root.glob("**/operator/*.csv"))
             if (found := _NAME.fullmatch(path.name)) and found["operator"] in _OPERATORS]
    if not paths:
        raise InputError.of("estimate-train-time-layout", f"no operator timings in {root}",
                            "give the folder that holds <site>/operator/<GPU>_<operator>_fp16.csv")
    problems: list[Problem] = []
    frames = []
    for path, found in paths:
        try:
            frames.append(_file(path, root, found))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return stack(frames)


def _file(path: Path, root: Path, found: re.Match[str]) -> pd.DataFrame:
    import pandas as pd

    operator = found["operator"]
    op, shapes = _OPERATORS[operator]
    table = pd.read_csv(path)
    try:
        cells = shapes(table)
        times = _times(table, operator)
    except KeyError as error:
        raise InputError.of("estimate-train-time-columns", f"{path.name} lacks the column {error}",
                            "give the file as it was published", where=str(path.name)) from None
    cells |= {
        "source": SOURCE, "licence": LICENCE, "file": path.relative_to(root).as_posix(),
        "timing_kind": _timing_kind(operator),
        "gpu": load_gpu(found["gpu"]).name, "software": _software(operator), "impl": operator,
        "op": op, "dtype": found["dtype"]}
    tidy = pd.concat([pd.DataFrame(cells | {"pass": way, "latency_s": time * 1e-6},
                                   index=table.index) for way, time in times.items()])
    return normalise(tidy[tidy["latency_s"] > 0])


def _times(table: pd.DataFrame, operator: str) -> dict[str, pd.Series[Any]]:
    if operator.endswith("optimizer"):
        return {"step": table["dur" if operator == "optimizer" else "dur(us)"]}
    if operator == "res_add":
        # The sampled function has no backward; its column repeats the forward time.
        return {"fwd": table["F_dur(us)"]}
    return {"fwd": table["F_dur(us)"], "bwd": table["B_dur(us)"]}


def _timing_kind(operator: str) -> str:
    if operator == "optimizer":
        return "host"
    return "event" if operator in _SPANS or operator.endswith("optimizer") else "kernel"


def _software(operator: str) -> str:
    known = {"flash_atten": "flash-attn", "ScaledUpperTriangMaskedSoftmax": "megatron"}
    return "deepspeed" if operator.endswith("optimizer") else known.get(operator, "torch")


def _part(table: pd.DataFrame, name: str) -> Any:
    """Return a column divided over the tensor parallel ranks."""
    return table[name] / table["mp"] if "mp" in table else table[name]


def vocabulary_rows(tensor_parallel: Any) -> Any:
    """Return the rows of the embedding table that one tensor parallel rank holds."""
    return np.ceil(VOCABULARY / (128 * tensor_parallel)) * 128


def _linear(rows: float, columns: float) -> Shapes:
    """Weights of ``columns`` by ``rows`` hidden widths; the larger one is what is split."""
    def shapes(table: pd.DataFrame) -> dict[str, Any]:
        whole, part = table["dim"], _part(table, "dim")
        n = columns * (part if columns > 1 else whole)
        k = rows * (whole if columns > 1 else part)
        return _gemm(1.0, table["b"] * table["l"], n, k)
    return shapes


def _gemm(batch: Any, m: Any, n: Any, k: Any) -> dict[str, Any]:
    return {"batch": batch, "m": m, "n": n, "k": k, "flops": 2 * batch * m * n * k}


def _final(table: pd.DataFrame) -> dict[str, Any]:
    return _gemm(1.0, table["b"] * table["l"], vocabulary_rows(table["mp"]), table["dim"])


def _scores(table: pd.DataFrame) -> dict[str, Any]:
    width, length = table["dim"] / table["h"], table["l"]
    return _gemm(table["b"] * _part(table, "h"), length, length, width)


def _context(table: pd.DataFrame) -> dict[str, Any]:
    width, length = table["dim"] / table["h"], table["l"]
    return _gemm(table["b"] * _part(table, "h"), length, width, length)


def _score_rows(table: pd.DataFrame) -> dict[str, Any]:
    return {"m": table["b"] * _part(table, "h") * table["l"], "n": table["l"]}


def _attention(table: pd.DataFrame) -> dict[str, Any]:
    width, heads = table["dim"] / table["h"], _part(table, "h")
    return {"batch": table["b"], "seq": table["l"], "seq_kv": table["l"], "heads": heads,
            "kv_heads": heads, "head_dim": width, "head_dim_v": width, "causal": "0"}


def _tokens(factor: float, *, split: bool) -> Shapes:
    """Rows of tokens, each ``factor`` hidden widths long."""
    def shapes(table: pd.DataFrame) -> dict[str, Any]:
        width = _part(table, "dim") if split else table["dim"]
        return {"m": table["b"] * table["l"], "n": factor * width,
                "tp": table.get("mp", 1.0)}
    return shapes


def _embedding(table: pd.DataFrame) -> dict[str, Any]:
    return {"m": table["b"] * table["l"], "n": table["dim"], "k": vocabulary_rows(table["mp"]),
            "tp": table["mp"]}


def _cross_entropy(table: pd.DataFrame) -> dict[str, Any]:
    return {"m": table["b"] * table["l"], "n": vocabulary_rows(table["mp"]), "tp": table["mp"]}


def _stage(*, first: bool = False, last: bool = False) -> Shapes:
    """Parameters of a pipeline stage: 12 dim^2 a layer, and the embedding or the output layer."""
    def shapes(table: pd.DataFrame) -> dict[str, Any]:
        layers = 12 * table["dim"] ** 2 * table["encoders"] / table["mp"]
        ends = float(first + last) * vocabulary_rows(table["mp"]) * table["dim"]
        return {"m": layers + ends, "n": 1.0, "tp": table["mp"]}
    return shapes


def _optimizer(table: pd.DataFrame) -> dict[str, Any]:
    return {"m": table["params"], "n": 1.0}


_OPERATORS: dict[str, tuple[str, Shapes]] = {
    "linear1": ("linear_bias", _linear(1, 3)), "linear2": ("linear_bias", _linear(1, 1)),
    "linear3": ("linear_bias", _linear(1, 4)), "linear4": ("linear_bias", _linear(4, 1)),
    "linear_final": ("linear", _final), "baddbmm": ("baddbmm", _scores), "bmm": ("bmm", _context),
    "flash_atten": ("attention", _attention), "softmax": ("softmax", _score_rows),
    "ScaledUpperTriangMaskedSoftmax": ("causal_softmax", _score_rows),
    "fillmask": ("masked_fill", _score_rows), "layernorm": ("layernorm", _tokens(1, split=False)),
    "RMSlayernorm": ("rmsnorm", _tokens(1, split=False)), "gelu": ("gelu", _tokens(4, split=True)),
    "res_add": ("res_add", _tokens(1, split=False)), "RoPE": ("rope", _tokens(1, split=True)),
    "embedding": ("embedding", _embedding), "optimizer": ("optimizer", _optimizer),
    "firstStage_optimizer": ("optimizer", _stage(first=True)),
    "middleStage_optimizer": ("optimizer", _stage()),
    "lastStage_optimizer": ("optimizer", _stage(last=True)),
    "parallel_cross_entropy_128": ("cross_entropy", _cross_entropy)}
"""Operator in the file's name, operation of the schema and shapes of one row."""
