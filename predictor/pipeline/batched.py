"""Times of many pipelines at once: one recurrence over the dependency graph of their schedule."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from predictor.pipeline.graph import Graph, build_graph
from predictor.pipeline.registry import SCHEDULES

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

JUMP_ABOVE = 3
"""Rounds of pp micro-batches that are always simulated; later ones repeat."""
SAME = 1e-12


@dataclass(frozen=True, slots=True)
class PipelineTimes:
    """What each pipeline takes, in seconds."""

    makespan_s: Floats
    """Shape (strategies,)."""
    end_s: Floats
    """Shape (strategies, ranks): end of each rank's last action."""


def pipeline_times(
    schedule: str, pp: int, vpp: int, num_microbatches: Ints, forward_s: Floats,
    backward_s: Floats, weight_s: Floats, link_s: Floats, blocking: Bools,
) -> PipelineTimes:
    """Return the times of strategies that share a schedule, ``pp`` and ``vpp``.

    ``forward_s``, ``backward_s`` and ``weight_s`` have shape (strategies, pp * vpp) by global
    stage (chunk x pp + rank); the others have shape (strategies,). A ``blocking`` hop keeps the
    sender busy; otherwise it only delays the receiver.
    """
    end_s = np.empty((len(link_s), pp))
    work_s = np.stack([forward_s, backward_s, weight_s], axis=2)
    for count in np.unique(num_microbatches):
        rows = np.flatnonzero(num_microbatches == count)
        end_s[rows] = _jumped(schedule, pp, vpp, int(count), work_s[rows], link_s[rows],
                              blocking[rows])
    return PipelineTimes(end_s.max(axis=1), end_s)


def _jumped(schedule: str, pp: int, vpp: int, count: int, work_s: Floats, link_s: Floats,
            blocking: Bools) -> Floats:
    """Simulate a few rounds and repeat the last one when the pipeline has become periodic."""
    short = JUMP_ABOVE * pp + count % pp
    if pp == 1:
        return count * work_s.sum(axis=(1, 2))[:, None]
    if count <= short + 2 * pp:
        return _simulate(schedule, pp, vpp, count, work_s, link_s, blocking)
    three = [_simulate(schedule, pp, vpp, short + extra * pp, work_s, link_s, blocking)
             for extra in range(3)]
    first, second = three[1] - three[0], three[2] - three[1]
    end_s = three[2] + second * ((count - short) // pp - 2)
    unsteady = np.flatnonzero((np.abs(first - second) > SAME * three[2]).any(axis=1))
    if len(unsteady):
        end_s[unsteady] = _simulate(schedule, pp, vpp, count, work_s[unsteady], link_s[unsteady],
                                    blocking[unsteady])
    return end_s


def _simulate(schedule: str, pp: int, vpp: int, count: int, work_s: Floats, link_s: Floats,
              blocking: Bools) -> Floats:
    graph = _graph(schedule, pp, vpp, count)
    end = action_ends(graph, work_s, link_s, blocking)
    return np.asarray(end[graph.last].T)


def action_ends(graph: Graph, work_s: Floats, link_s: Floats, blocking: Bools) -> Floats:
    """Return shape (actions, strategies): when each action ends.

    ``work_s`` has shape (strategies, global stages, kinds of work).
    """
    held = np.where(blocking, link_s, 0.0)
    delay = link_s - held
    duration = work_s[:, graph.stage, graph.work].T + graph.sends[:, None] * held
    arrival = graph.hop[:, None] * delay
    # One extra row of zeros stands for "nothing before".
    end = np.zeros((len(graph.rank) + 1, len(link_s)))
    for level in graph.levels:
        ready = np.maximum(end[graph.previous[level]], end[graph.needs[level]] + arrival[level])
        end[level] = ready + duration[level]
    return end[:-1]


@lru_cache(maxsize=512)
def _graph(schedule: str, pp: int, vpp: int, count: int) -> Graph:
    return build_graph(SCHEDULES[schedule](pp, vpp, count), pp, vpp)

