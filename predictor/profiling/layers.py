"""Whole transformer layers, forward and backward, and where their time goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from predictor.profiling.measure import Place
from predictor.profiling.point import Cell, Point, Row
from predictor.profiling.ranks import mean_of
from predictor.profiling.shape import SIZE_CELLS, Sizes, size_problems
from predictor.profiling.timers import Timing, time_call
from predictor.spec.errors import Problem

PROFILED_CALLS = 3


def problems_of(spec: Row) -> list[Problem]:
    """Return everything that is wrong with the cells of a layer's point."""
    return size_problems(spec) + [
        Problem("layer-cells", f"a layer has no {name}", f"give {', '.join(SIZE_CELLS)}", name)
        for name in sorted(set(spec) - set(SIZE_CELLS))]


def measure(point: Point, place: Place) -> Sequence[Row]:
    """Return a row of ``layers`` for each pass and the operators' shares as ``attributions``."""
    import torch

    from predictor.profiling.models import Layer, angles
    from predictor.profiling.operators.registry import torch_dtype

    sizes = Sizes.of(point.spec)
    dtype = torch_dtype(sizes.dtype)
    layer = Layer(sizes).to(place.device, dtype)
    turned = None if sizes.style == "gpt" else tuple(
        one.to(place.device, dtype) for one in angles(sizes))
    x = torch.randn(sizes.micro_batch_size, sizes.seq_len, sizes.hidden_size, dtype=dtype,
                    device=place.device, requires_grad=True)
    out = layer(x, turned)
    gradient = torch.randn_like(out)
    wanted = [x, *layer.parameters()]

    def forward() -> Any:
        return layer(x, turned)

    def backward() -> Any:
        return torch.autograd.grad(out, wanted, gradient, retain_graph=True, allow_unused=True)

    cells: dict[str, Cell] = {"source": "campaign", "gpu": place.gpu, **asdict(sizes),
                              "ranks": place.ranks}
    rows: list[Row] = []
    for way, call in (("fwd", forward), ("bwd", backward)):
        timing = time_call(call, place, agree=mean_of(place))
        rows.append(_row(cells, way, timing))
        rows += [{"table": "attributions", **cells, "pass": way, **share}
                 for share in _attributed(call, place)]
    return rows


def _row(cells: Row, way: str, timing: Timing) -> Row:
    return {"table": "layers", **cells, "pass": way, "timing_kind": timing.timing_kind,
            "latency_s": timing.seconds, **timing.cells()}


def _attributed(call: Any, place: Place) -> Iterator[Row]:
    """Yield the device time of each kernel (on a CPU: operator) in one call of a layer."""
    from torch.profiler import ProfilerActivity, profile

    cuda = place.device == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profile(activities=activities) as seen:
        for _ in range(PROFILED_CALLS):
            call()
    for event in seen.key_averages():
        spent = event.self_device_time_total if cuda else event.self_cpu_time_total
        if spent > 0:
            yield {"operator": event.key, "calls": event.count / PROFILED_CALLS,
                   "seconds": spent * 1e-6 / PROFILED_CALLS}
