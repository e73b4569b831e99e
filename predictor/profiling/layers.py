"""Whole transformer layers, forward and backward, alone or under one kind of parallelism."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from predictor.profiling.measure import Place
from predictor.profiling.point import Cell, Point, Row
from predictor.profiling.ranks import mean_of
from predictor.profiling.shape import SIZE_CELLS, Sizes, size_problems, word_or_count
from predictor.profiling.timers import Timing, time_call
from predictor.spec.errors import Problem

PARALLEL = ("none", "ddp", "fsdp2", "tensor")
"""How the ranks share a layer; with ``none`` each has one of its own."""
CELLS = (*SIZE_CELLS, "parallel")
PROFILED_CALLS = 3


def problems_of(spec: Row, ranks: int) -> list[Problem]:
    """Return everything that is wrong with the cells of a layer's point."""
    found = [Problem("layer-cells", f"a layer has no {name}", f"give {', '.join(CELLS)}", name)
             for name in sorted(set(spec) - set(CELLS))]
    found += size_problems(spec)
    parallel = spec.get("parallel", "none")
    found += word_or_count("parallel", parallel, {"parallel": PARALLEL})
    if found or parallel == "none":
        return found
    sizes, rules = Sizes.of(spec), []
    if parallel == "tensor":
        rules = [(side % ranks == 0, f"{ranks} ranks do not divide {name} {side}")
                 for name, side in (("num_attention_heads", sizes.num_attention_heads),
                                    ("num_query_groups", sizes.groups), ("seq_len", sizes.seq_len),
                                    ("ffn_hidden_size", sizes.ffn_hidden_size))]
        rules.append((sizes.style != "moe", "experts are not measured under tensor parallelism"))
    rules.append((ranks > 1, f"a layer under {parallel} needs several ranks"))
    return [Problem("layer-parallel", message, "change ranks or the layer", "parallel")
            for holds, message in rules if not holds]


def measure(point: Point, place: Place) -> Sequence[Row]:
    """Return a row of ``layers`` for each pass and, of a layer alone, the operators' shares as
    ``attributions``."""
    import torch

    sizes, parallel = Sizes.of(point.spec), str(point.spec.get("parallel", "none"))
    torch.manual_seed(place.rank)
    run = (_alone if parallel == "none" else _shared)(sizes, place, parallel)
    cells: dict[str, Cell] = {"source": "campaign", "gpu": place.gpu, **asdict(sizes),
                              "parallel": parallel, "ranks": place.ranks,
                              "ranks_per_node": min(place.ranks, place.ranks_per_node),
                              "intra_link": place.intra_link, "inter_link": place.inter_link}
    agree = mean_of(place)
    forward = time_call(run.forward, place, agree=agree)
    backward = time_call(run.backward, place, agree=agree)
    if run.backward_includes_forward:
        backward = _less(backward, forward.seconds)
    rows = [_row(cells, "fwd", forward), _row(cells, "bwd", backward)]
    if parallel == "none":
        rows += [{"table": "attributions", **cells, "pass": way, **share}
                 for way, call in (("fwd", run.forward), ("bwd", run.backward))
                 for share in _attributed(call, place)]
    return rows


@dataclass(frozen=True, slots=True)
class _Calls:
    forward: Callable[[], Any]
    backward: Callable[[], Any]
    backward_includes_forward: bool


def _alone(sizes: Sizes, place: Place, _: str) -> _Calls:
    import torch

    from predictor.profiling.models import Layer, angles
    from predictor.profiling.operators.registry import torch_dtype

    dtype = torch_dtype(sizes.dtype)
    layer = Layer(sizes).to(place.device, dtype)
    turned = None if sizes.style == "gpt" else tuple(
        one.to(place.device, dtype) for one in angles(sizes))
    x = torch.randn(sizes.micro_batch_size, sizes.seq_len, sizes.hidden_size, dtype=dtype,
                    device=place.device, requires_grad=True)
    out = layer(x, turned)
    gradient = torch.randn_like(out)
    wanted = [x, *layer.parameters()]
    return _Calls(lambda: layer(x, turned),
                  lambda: torch.autograd.grad(out, wanted, gradient, retain_graph=True,
                                              allow_unused=True), False)


def _shared(sizes: Sizes, place: Place, parallel: str) -> _Calls:
    """Prepare a layer as the middle stage of a model, which takes and gives activations."""
    import torch

    from predictor.profiling.models import Transformer
    from predictor.profiling.steps.parallel import autocast, mesh_of, replicate, split_tensors
    from predictor.profiling.steps.plan import StepPlan

    tp = place.ranks if parallel == "tensor" else 1
    three = replace(sizes, num_layers=3, vocab_size=1)
    plan = StepPlan(three, global_batch_size=sizes.micro_batch_size * place.ranks // tp,
                    dp=place.ranks // tp, tp=tp, zero_stage=3 if parallel == "fsdp2" else 0)
    mesh = mesh_of(plan, place)
    stage: Any = Transformer(three, 1, 2).to(place.device)
    if parallel == "tensor":
        split_tensors(stage, mesh["tp"])
    else:
        stage = replicate(stage, plan, mesh["dp"])
    x = torch.randn(sizes.micro_batch_size, sizes.seq_len // tp, sizes.hidden_size,
                    device=place.device, requires_grad=True)
    gradient = torch.randn_like(x)

    def forward() -> Any:
        with autocast(plan, place):
            return stage(x)

    def both() -> None:
        stage.zero_grad(set_to_none=True)
        out = forward()
        out.backward(gradient.to(out.dtype))

    both()  # sets up what the first step sets up
    return _Calls(forward, both, True)


def _less(timing: Timing, seconds: float) -> Timing:
    """Return a timing without the forward pass that it began with."""
    least = timing.seconds / 1000.0  # noise may put a short backward below nothing
    moved = {name: max(getattr(timing, name) - seconds, least)
             for name in ("seconds", "ci_low_s", "ci_high_s")}
    return replace(timing, **moved) if math.isfinite(timing.ci_high_s) else replace(
        timing, seconds=moved["seconds"], ci_low_s=moved["ci_low_s"])


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
