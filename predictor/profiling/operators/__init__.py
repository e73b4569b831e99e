"""Kernels of training, one entry per family, and how each is measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from predictor.profiling.measure import Place
from predictor.profiling.operators.registry import Operator, Shape, operator_of, shape_of
from predictor.profiling.point import Cell, Point, Row
from predictor.profiling.ranks import mean_of
from predictor.profiling.timers import Timing, time_call, time_graph


def measure(point: Point, place: Place) -> Sequence[Row]:
    """Return a row of the table ``kernels`` for each pass, and one more for its graph replay.

    Several ranks run the same calls at the same time, each its own; the time is their mean. That
    is how much neighbours on a node slow one another.
    """
    import torch

    operator = operator_of(str(point.spec["family"]))
    shape = shape_of(operator, point.spec, place.device)
    torch.backends.cuda.matmul.allow_tf32 = shape.dtype == "tf32"
    rows: list[Row] = []
    for way, call in operator.prepare(shape).items():
        timings = (time_call(call, place, agree=mean_of(place)),
                   time_graph(call, place) if way == "fwd" else None)
        rows += [_row(operator, shape, way, timing, place) for timing in timings
                 if timing is not None]
    return rows


def _row(operator: Operator, shape: Shape, way: str, timing: Timing, place: Place
         ) -> Mapping[str, Cell]:
    import torch

    return {
        "table": "kernels", "source": "campaign", "licence": "Apache-2.0", "gpu": place.gpu,
        "timing_kind": timing.timing_kind, "software": "torch", "version": torch.__version__,
        "impl": operator.impl, "op": operator.op, "pass": way, "dtype": shape.dtype,
        "causal": str(int(shape.causal)) if operator.op == "attention" else "",
        "latency_s": timing.seconds, "flops": operator.flops(shape, way) or math.nan,
        **shape.cells, **timing.cells()}
