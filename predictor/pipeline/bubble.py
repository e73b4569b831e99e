"""How much of a pipeline's time is lost."""

from __future__ import annotations

import numpy as np

from predictor.pipeline.batched import Floats, PipelineTimes


def bubble_fraction(times: PipelineTimes) -> Floats:
    """Return shape (strategies,): the part of the makespan in which ranks do not compute.

    It is the mean over ranks and counts waiting for work and for links: (p - 1) / (m + p - 1) for
    1F1B with equal stages.
    """
    return np.asarray(1.0 - times.busy_s.mean(axis=1) / times.makespan_s)


def bubble_to_work(times: PipelineTimes) -> Floats:
    """Return shape (strategies,): time lost on the busiest rank over its work.

    This is the ratio papers state: (p - 1) / m for 1F1B, (p - 1) / (v m) when interleaved.
    """
    work_s = times.busy_s.max(axis=1)
    return np.asarray((times.makespan_s - work_s) / work_s)
