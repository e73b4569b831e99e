"""Reads the operator timings of NeuSight (sitar-lab/NeuSight, ``data/dataset``, MIT).

One CSV per kind: ``bmm``, ``linear``, ``vec`` or ``elem``, ``softmax``, ``ln``. All are PyTorch
in fp32, forward, the mean of the best 5 of 25 event-timed eager calls in milliseconds: launches
are included, so that nothing takes less than 24 to 60 us. The source multiplies (B, M, N) by
(B, N, K): its N is the contraction and its K the width of the output.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.datasets.kernel_schema import COLUMNS, stack
from predictor.datasets.sources.frames import (
    catalogue_names, numbers, open_table, refuse_unknown, tidy, words,
)
from predictor.datasets.tables import require_columns
from predictor.spec.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

SOURCE = "neusight"
LICENCE = "MIT"
FILES = ("bmm", "linear", "vec", "elem", "softmax", "ln")
"""Files of a data set; ``vec`` holds what ``elem``, ``softmax`` and ``ln`` repeat in part."""
_NEEDED = ("OPName", "Latency", "Device", "B")
_OPERATIONS = {"bmm": "bmm", "linear": "linear_bias", "ln": "layernorm", "layernorm": "layernorm",
               "softmax": "softmax", "gelu": "gelu", "relu": "relu", "tanh": "tanh", "add": "add",
               "mul": "mul", "div": "div", "pow": "pow", "addu": "addu", "mulu": "mulu",
               "divu": "divu", "powu": "powu"}
"""Names of the source, a prefix ``vec`` aside; ``u`` takes a scalar as its second operand and
``linear`` is ``torch.nn.Linear`` with a bias."""
_MATRIX = ["bmm", "linear"]
"""Operations with columns M, N and K; the others have H."""
_MILLI = 1e-3


def read(path: Path) -> pd.DataFrame:
    """Return the tidy table of one CSV, or of a folder that holds several of :data:`FILES`.

    Measurements that two files repeat are taken once.

    Raises
    ------
    InputError
        When there is no such file, or it lacks columns or names operations of another kind.
    """
    path = Path(path)
    files = [path]
    if path.is_dir():
        files = [path / f"{name}.csv" for name in FILES if (path / f"{name}.csv").is_file()]
    if not files:
        raise InputError.of("neusight-layout", f"none of {', '.join(FILES)}.csv is in {path}",
                            "give a folder such as data/dataset/train, or one of its files")
    measured = [name for name in COLUMNS if name != "file"]
    return stack(map(_file, files)).drop_duplicates(measured, ignore_index=True)


def _file(path: Path) -> pd.DataFrame:
    table = open_table(path, _NEEDED, "NeuSight's operator timings")
    names = words(table, "OPName").str.lower().str.removeprefix("vec")
    refuse_unknown("operation", names, _OPERATIONS)
    matrix = names.isin(_MATRIX)
    require_columns(table, (*("MNK" if matrix.any() else ""), *("" if matrix.all() else "H")),
                    "NeuSight's operator timings")
    cells = {
        "source": SOURCE, "licence": LICENCE, "file": path.name, "timing_kind": "event",
        "gpu": catalogue_names(table["Device"]), "software": "torch",
        "version": words(table, "Torch Version").str.removeprefix("p"),
        "impl": words(table, "Kernel Name"), "op": names.map(_OPERATIONS), "pass": "fwd",
        "dtype": "fp32", "latency_s": numbers(table, "Latency") * _MILLI}
    return tidy(cells | _shapes(table, names), table.index)


def _shapes(table: pd.DataFrame, names: pd.Series[Any]) -> dict[str, Any]:
    """Return batch, m, n, k; memory-bound operations run over B rows of H elements."""
    batch = numbers(table, "B")
    matrix = names.isin(_MATRIX)
    # A linear layer folds its batch into the tokens: all samples share the weights.
    folded = np.where(names == "linear", batch, 1.0)
    return {
        "batch": np.where(names == "bmm", batch, np.where(matrix, 1.0, np.nan)),
        "m": np.where(matrix, numbers(table, "M") * folded, batch),
        "n": np.where(matrix, numbers(table, "K"), numbers(table, "H")),
        "k": np.where(matrix, numbers(table, "N"), np.nan)}
