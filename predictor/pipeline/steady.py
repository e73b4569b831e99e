"""The steady state of a schedule: the rounds that repeat in the middle of a step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from predictor.pipeline.graph import NONE, Graph, Ints


@dataclass(frozen=True, slots=True)
class Steady:
    """Where whole rounds can be inserted into a graph.

    A step of one round more is the same graph with one more round before action ``cut``. What
    comes after ``cut`` depends on what came before only through the ``live`` actions. A pipeline
    is max-plus linear (it only adds and takes maxima), so when every live action ends the same
    time later than its counterpart one round ago, so does everything after it, round by round,
    for ever: skipping rounds is exact. Baccelli et al. 1992, Synchronization and Linearity, ch. 3.
    """

    cut: int
    live: Ints
    """Actions before ``cut`` that later ones wait for."""
    before: Ints
    """The same actions one round earlier."""


def find_steady(graph: Graph, group: int) -> Steady | None:
    """Return where rounds of ``group`` micro-batches repeat, None when they do not do so twice.

    The levels of one round must hold the same actions as the round before, and so must that one.
    """
    period = int((graph.microbatch < group).sum()) // max(len(graph.first), 1)
    bounds = np.array([level.start for level in graph.levels] + [len(graph.rank)])
    same = _same_as_a_round_ago(graph, bounds, period, group)
    run = _longest_run(same)
    if run is None or run[1] - run[0] < period:
        return None
    cut, earlier = int(bounds[run[1]]), int(bounds[run[1] - period])
    # What a rank needs of itself it has long before its previous action.
    later = np.concatenate([graph.previous[cut:], graph.needs[cut:][graph.hop[cut:]]])
    live = np.unique(later[(later < cut) & (later != NONE)])
    if not len(live) or live[0] < earlier or graph.first.max() >= cut:
        return None
    return Steady(cut, live, live - (cut - earlier))


def _same_as_a_round_ago(graph: Graph, bounds: Ints, period: int, group: int) -> Ints:
    """Return, for each level, whether it repeats the level ``period`` before."""
    levels = len(bounds) - 1
    same = np.zeros(levels, dtype=np.int64)
    if levels <= period:
        return same
    size = np.diff(bounds)
    level = np.repeat(np.arange(levels), size)
    within = np.arange(len(level)) - bounds[level]
    comparable = np.flatnonzero((level >= period) & (size[level] == size[level - period]))
    other = bounds[level[comparable] - period] + within[comparable]
    alike = (graph.stage[comparable] == graph.stage[other]) \
        & (graph.work[comparable] == graph.work[other]) \
        & (graph.microbatch[comparable] == graph.microbatch[other] + group)
    matches = np.bincount(level[comparable], weights=alike, minlength=levels)
    same[matches == size] = 1
    return same


def _longest_run(same: Ints) -> tuple[int, int] | None:
    """Return start and stop of the longest run of ones, None when there is none."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], same, [0]])))
    if not len(edges):
        return None
    starts, stops = edges[::2], edges[1::2]
    best = int(np.argmax(stops - starts))
    return int(starts[best]), int(stops[best])
