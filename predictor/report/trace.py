"""A predicted step as a timeline for Perfetto (ui.perfetto.dev) or chrome://tracing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from predictor.pipeline import timeline
from predictor.pipeline.timeline import Slice
from predictor.spec.errors import InputError
from predictor.step.predict import StepPrediction

MOST_EVENTS = 500_000
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
    times = prediction.times
    return timeline.chrome_trace(
        prediction.strategy.schedule or "1f1b", vpp, count, times.work_s, float(times.link_s[0]),
        blocking=bool(prediction.batch.strategy.overlap_p2p[0] == 0), after=_shared(prediction))


def _shared(prediction: StepPrediction) -> Iterator[Slice]:
    times = prediction.times
    for rank, (end, parts) in enumerate(zip(times.end_s.tolist(), times.shared_s.tolist(),
                                            strict=True)):
        for name, duration in zip(SHARED, parts, strict=True):
            yield Slice(rank, name, name.split(" ")[0], end, duration)
            end += duration
