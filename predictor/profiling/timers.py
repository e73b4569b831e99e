"""Times calls on a device until the median is known well enough."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from predictor.profiling.measure import Place
from predictor.profiling.sensors import Sensors, sensors
from predictor.profiling.statistics import median_interval

Call = Callable[[], object]
LEAST_SAMPLES = 7
"""Of which the interval can speak (six are needed) with one outlier."""
MOST_SAMPLES = 2_000
WARM_UPS = 3
SHORTEST_SAMPLE_S = 2e-4
"""Calls on a CPU are repeated until a sample is this long: the clock and Python's loop then add
less than a thousandth."""
FLUSH_BYTES = 256 << 20
"""Written between samples on a GPU: more than any L2 (126 MB on a B200)."""


@dataclass(frozen=True, slots=True)
class Timing:
    """What repeated calls took."""

    seconds: float
    """Median of the samples."""
    ci_low_s: float
    ci_high_s: float
    n_samples: int
    timing_kind: str
    """host on a CPU, event for eager calls on a GPU, graph for replays."""
    sensors: Sensors = field(default_factory=Sensors)

    def cells(self) -> dict[str, float]:
        """Return the columns of statistics that stand beside every timed row."""
        return {"n_samples": float(self.n_samples), "ci_low_s": self.ci_low_s,
                "ci_high_s": self.ci_high_s if math.isfinite(self.ci_high_s) else math.nan,
                "clock_hz": self.sensors.clock_hz, "power_w": self.sensors.power_w,
                "temperature_c": self.sensors.temperature_c}


def time_call(
    call: Call, place: Place, *, agree: Callable[[float], float] | None = None,
) -> Timing:
    """Return how long ``call`` takes, its launches included.

    Calls are repeated until the interval of the median is within ``place.precision`` of it or
    ``place.most_s`` are spent. ``agree`` turns this rank's value into the one that all ranks share,
    so that ranks which must call together stop together; it sees a sample or the seconds spent.
    """
    for _ in range(WARM_UPS):
        call()
    sample = _cuda_sampler(call) if place.device == "cuda" else _host_sampler(call, agree)
    samples = _repeat(sample, place, agree)
    kind = "event" if place.device == "cuda" else "host"
    return Timing(*median_interval(samples), len(samples), kind, sensors(place.device))


def time_graph(call: Call, place: Place) -> Timing | None:
    """Return how long a replay of ``call`` as a CUDA graph takes; None where it has none.

    Libraries that synchronise or allocate outside the graph's pool cannot be captured.
    """
    if place.device != "cuda":
        return None
    import torch

    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            call()
    except RuntimeError:
        torch.cuda.synchronize()
        return None
    samples = _repeat(_cuda_sampler(graph.replay), place, None)
    return Timing(*median_interval(samples), len(samples), "graph", sensors(place.device))


def _repeat(
    sample: Call, place: Place, agree: Callable[[float], float] | None
) -> list[float]:
    share = agree or float
    began, samples = time.perf_counter(), []
    while True:
        samples.append(share(float(sample())))  # type: ignore[arg-type]
        if len(samples) < LEAST_SAMPLES:
            continue
        middle, low, high = median_interval(samples)
        good = (high - low) / 2.0 <= place.precision * middle
        spent = share(time.perf_counter() - began)
        if good or spent > place.most_s or len(samples) >= MOST_SAMPLES:
            return samples


def _host_sampler(call: Call, agree: Callable[[float], float] | None) -> Callable[[], float]:
    began = time.perf_counter()
    call()
    once = time.perf_counter() - began
    once = agree(once) if agree else once
    loops = max(1, math.ceil(SHORTEST_SAMPLE_S / max(once, 1e-7)))

    def sample() -> float:
        start = time.perf_counter_ns()
        for _ in range(loops):
            call()
        return (time.perf_counter_ns() - start) * 1e-9 / loops

    return sample


def _cuda_sampler(call: Call) -> Callable[[], float]:
    import torch

    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def sample() -> float:
        _flush_buffer().zero_()
        first.record()
        call()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) * 1e-3

    return sample


@lru_cache(maxsize=1)
def _flush_buffer() -> Any:
    import torch

    return torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
