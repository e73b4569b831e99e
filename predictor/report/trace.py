"""A predicted step as a timeline for Perfetto (ui.perfetto.dev) or chrome://tracing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from predictor.pipeline.batched import action_ends
from predictor.pipeline.graph import Graph, build_graph
from predictor.pipeline.registry import SCHEDULES
from predictor.spec.errors import InputError
from predictor.step.predict import StepPrediction

MOST_EVENTS = 500_000
WORK = ("forward", "backward", "weight gradient")
SHARED = ("data-parallel communication (exposed)", "optimizer")


def chrome_trace(prediction: StepPrediction) -> dict[str, Any]:
    """Return the trace in the Trace Event Format: one process per pipeline rank, microseconds.

    Raises
    ------
    InputError
        When the step has more passes than a viewer opens.
    """
    pp, vpp = prediction.strategy.pp, prediction.strategy.vpp
    count = int(prediction.batch.num_microbatches[0])
    if 2 * pp * vpp * count > MOST_EVENTS:
        raise InputError.of("trace-size", f"a trace of pp {pp} x vpp {vpp} x {count} micro-batches "
                            f"has more than {MOST_EVENTS} events", "lower global_batch_size")
    schedule = prediction.strategy.schedule or "1f1b"
    graph = build_graph(SCHEDULES[schedule](pp, vpp, count), pp, vpp)
    events = [*_names(pp), *_passes(prediction, graph), *_shared(prediction)]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _names(pp: int) -> Iterator[dict[str, Any]]:
    for rank in range(pp):
        yield {"ph": "M", "name": "process_name", "pid": rank, "tid": 0,
               "args": {"name": f"pipeline rank {rank}"}}


def _passes(prediction: StepPrediction, graph: Graph) -> Iterator[dict[str, Any]]:
    times, pp = prediction.times, prediction.strategy.pp
    blocking = prediction.batch.strategy.overlap_p2p == 0
    ends = action_ends(graph, times.work_s[None], times.link_s, blocking)[:, 0].tolist()
    durations = times.work_s[graph.stage, graph.work].tolist()
    held = float(times.link_s[0]) if blocking[0] else 0.0
    seen: dict[tuple[int, int], int] = {}
    for stage, work, rank, sends, end, duration in zip(
            graph.stage.tolist(), graph.work.tolist(), graph.rank.tolist(), graph.sends.tolist(),
            ends, durations, strict=True):
        number = seen.get((stage, work), 0)  # a stage takes the micro-batches in order
        seen[(stage, work)] = number + 1
        if duration > 0:
            start = end - duration - held * sends
            yield _event(rank, f"{WORK[work][0].upper()}{number}", WORK[work], start, duration,
                         chunk=stage // pp, micro_batch=number)


def _shared(prediction: StepPrediction) -> Iterator[dict[str, Any]]:
    times = prediction.times
    for rank, (end, parts) in enumerate(zip(times.end_s.tolist(), times.shared_s.tolist(),
                                            strict=True)):
        for name, duration in zip(SHARED, parts, strict=True):
            yield _event(rank, name, name.split(" ")[0], end, duration)
            end += duration


def _event(rank: int, name: str, category: str, start_s: float, duration_s: float,
           **details: int) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": category, "pid": rank, "tid": 0, "ts": start_s * 1e6,
            "dur": duration_s * 1e6, "args": details}
