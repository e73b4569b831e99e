"""One way into every measurement: a point and the processes that are there for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module

from predictor.profiling.point import Kind, Point, Row


@dataclass(frozen=True, slots=True)
class Place:
    """Where a measurement runs: this process among its ranks."""

    device: str
    """As torch names it: ``cpu`` or ``cuda``. Each rank has set its own device already."""
    gpu: str
    """Name in the catalogue of what is measured."""
    rank: int = 0
    ranks: int = 1
    """Processes of the default group; it is set up whenever there are several."""
    ranks_per_node: int = 1
    backend: str = ""
    """Of the default group: nccl, gloo; blank when there is one process."""
    precision: float = 0.02
    """Half-width of the median's 95 % interval, as a share, at which a timing is good enough."""
    most_s: float = 2.0
    """Longest time spent on repeating one call."""
    system: str = ""
    """What the machine is called in the tables of collectives."""
    intra_link: str = ""
    inter_link: str = ""
    nic_gbps_per_gpu: float = math.nan


Measure = Callable[[Point, Place], Sequence[Row]]
MODULES = {Kind.KERNEL: "operators", Kind.LAYER: "layers", Kind.COLLECTIVE: "collectives",
           Kind.STEP: "steps"}


def measure(point: Point, place: Place) -> Sequence[Row]:
    """Measure a point; every rank calls this at the same time, and rank 0's rows count.

    Raises
    ------
    UnsupportedError
        When this device or library cannot run it.
    torch.OutOfMemoryError
        When it does not fit.
    """
    module = import_module(f"predictor.profiling.{MODULES[point.kind]}")
    measured: Measure = module.measure
    return measured(point, place)
