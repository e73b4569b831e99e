"""The operators that can be measured, by family."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from predictor.profiling.point import Row, UnsupportedError
from predictor.spec.errors import InputError, Problem

Call = Callable[[], object]
Tensors = Any
"""The module ``torch``: imported by workers only."""
DTYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}
"""Data types of the tidy table -> torch's. ``tf32`` are fp32 tensors multiplied in tf32."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The work of one point: the columns of the tidy table that its family uses."""

    cells: Mapping[str, float]
    dtype: str
    device: str
    causal: bool = False

    def __getattr__(self, name: str) -> int:
        try:
            return int(self.cells[name])
        except KeyError:
            raise AttributeError(name) from None

    def tensor(self, *sides: int, grad: bool = False) -> Any:
        """Return a random tensor of the shape's type on its device."""
        import torch

        values = torch.randn(sides, device=self.device, dtype=torch_dtype(self.dtype))
        return values.requires_grad_(grad)


@dataclass(frozen=True, slots=True)
class Operator:
    """One family of kernels."""

    op: str
    """Word of the tidy table."""
    columns: tuple[str, ...]
    """Columns that say how large it is; those in ``optional`` may be left out."""
    prepare: Callable[[Shape], Mapping[str, Call]]
    """Pass -> the call to time, on tensors that are there already."""
    flops: Callable[[Shape, str], float]
    """Of a pass."""
    impl: str = "aten"
    optional: Mapping[str, float] | None = None
    """Columns with the value that they take when they are left out."""
    dtypes: tuple[str, ...] = ("fp32", "tf32", "bf16", "fp16")


@lru_cache(maxsize=1)
def registry() -> Mapping[str, Operator]:
    """Return the operators by the name that campaigns use."""
    from predictor.profiling.operators import attention, memory_bound, products

    return products.OPERATORS | attention.OPERATORS | memory_bound.OPERATORS


def operator_of(family: str) -> Operator:
    """Return an operator.

    Raises
    ------
    InputError
        When there is no such family; the message names one spelt alike, or all.
    """
    known = registry()
    if family not in known:
        near = difflib.get_close_matches(family, known, 1)
        hint = f"did you mean {near[0]}?" if near else "choose from " + ", ".join(sorted(known))
        raise InputError.of("operator", f"there is no operator {family!r}", hint, "family")
    return known[family]


def problems_of(spec: Row) -> list[Problem]:
    """Return everything that is wrong with the cells of a kernel's point."""
    try:
        operator = operator_of(str(spec.get("family", "")))
    except InputError as error:
        return list(error.problems)
    optional = operator.optional or {}
    known = {"family", "dtype", "causal", *operator.columns}
    found = [Problem("operator-columns", f"{spec['family']} has no column {name}",
                     f"give {', '.join(sorted(known))}", name)
             for name in sorted(set(spec) - known)]
    for name in operator.columns:
        value = spec.get(name, optional.get(name))
        if not isinstance(value, int | float) or isinstance(value, bool) or value < 1 \
                or value != int(value):
            found.append(Problem("operator-columns", f"{spec['family']} needs a whole number "
                                 f"{name} above 0 and got {value!r}", "correct the grid", name))
    if spec.get("dtype") not in DTYPES:
        found.append(Problem("operator-dtype", f"there is no data type {spec.get('dtype')!r}",
                             f"choose from {', '.join(DTYPES)}", "dtype"))
    return found


def shape_of(operator: Operator, spec: Row, device: str) -> Shape:
    """Return the shape of a point whose cells were checked."""
    cells = {name: float(spec.get(name, (operator.optional or {}).get(name)))  # type: ignore[arg-type]
             for name in operator.columns}
    dtype = str(spec["dtype"])
    if dtype not in operator.dtypes:
        raise UnsupportedError(f"{operator.op} is not measured in {dtype}")
    if dtype == "tf32" and device != "cuda":
        raise UnsupportedError("tf32 is a mode of CUDA's products")
    return Shape(cells, dtype, device, bool(spec.get("causal", False)))


def torch_dtype(name: str) -> Any:
    """Return torch's data type for a word of the tidy table."""
    import torch

    return getattr(torch, DTYPES[name])
