"""Times of many pipelines at once: one recurrence over the dependency graph of their schedule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from predictor.pipeline.closed_forms import gpipe_rank_s
from predictor.pipeline.graph import NONE, WORKS, Graph, build_graph
from predictor.pipeline.registry import SCHEDULES
from predictor.pipeline.schedule import Schedule, shortened
from predictor.pipeline.steady import Steady, find_steady

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

FIRST_ROUNDS = 4
"""Rounds that are tried first: warm-up, two that repeat, cool-down. Most pipelines are steady by
then; the others get twice as many until they are."""
ODD_AFTER, ODD_ROUNDS = 8, 4
"""After so many rounds, most pipelines that are still not steady repeat with another period: a
round trip between k neighbouring ranks lets k micro-batches pass, and when the slowest is one of
fewer ranks than all, the period is k. So many values of k below the number of ranks are tried."""
SAME = 1e-12
"""Rounds count as equal when they differ by less than this part of the time so far. Max-plus
systems do not amplify differences, so a result that skips k rounds is off by at most k times it."""
BLOCK_CELLS = 1 << 20
"""Actions times strategies that are timed together: what fits the processor's cache."""


@dataclass(frozen=True, slots=True)
class PipelineTimes:
    """What each pipeline takes, in seconds. Shape (strategies, ranks) unless said otherwise."""

    makespan_s: Floats
    """Shape (strategies,): end of the last action of any rank."""
    end_s: Floats
    """End of each rank's last action."""
    start_s: Floats
    """Start of each rank's first action."""
    busy_s: Floats
    """Sum of the durations of each rank's actions; the rest is bubble and waiting for links."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """Durations of a group of strategies, laid out for the recurrence."""

    work_s: Floats
    """Shape (stages x kinds of work, strategies)."""
    link_s: Floats
    """Shape (2, strategies): no hop, one hop."""
    held_s: Floats
    """Shape (3, strategies): what 0, 1, 2 hops keep a rank busy."""

    @classmethod
    def of(cls, work_s: Floats, link_s: Floats, blocking: Bools) -> _Rows:
        work = np.ascontiguousarray(work_s.reshape(len(link_s), -1).T)
        held = np.where(blocking, link_s, 0.0)
        return cls(work, np.stack([np.zeros_like(link_s), link_s]),
                   np.arange(3.0)[:, None] * held)

    def __len__(self) -> int:
        return len(self.link_s[0])

    def __getitem__(self, rows: Ints | slice) -> _Rows:
        return _Rows(self.work_s[:, rows], self.link_s[:, rows], self.held_s[:, rows])


def pipeline_times(
    schedule: str, pp: int, vpp: int, num_microbatches: Ints, forward_s: Floats,
    backward_s: Floats, weight_s: Floats, link_s: Floats, blocking: Bools,
) -> PipelineTimes:
    """Return the times of strategies that share a schedule, ``pp`` and ``vpp``.

    ``forward_s``, ``backward_s`` and ``weight_s`` have shape (strategies, pp * vpp) by global
    stage (chunk x pp + rank); the others have shape (strategies,). ``weight_s`` is used by
    schedules that split weight gradients from the backward; for others it must be 0.

    A result that crosses a link arrives ``link_s`` after its action ended. When ``blocking``, the
    hop also keeps sender and receiver from working; a send and a receive between the same two
    ranks are one exchange.
    """
    count, work_s = np.asarray(num_microbatches), np.stack([forward_s, backward_s, weight_s], 2)
    per_rank = work_s.sum(axis=2).reshape(-1, vpp, pp).sum(axis=1)
    busy_s = count[:, None] * per_rank
    if pp == 1:
        return PipelineTimes(busy_s[:, 0], busy_s, np.zeros_like(busy_s), busy_s)
    if schedule == "gpipe" and vpp == 1:
        start_s, end_s = gpipe_rank_s(count, forward_s, backward_s, link_s, blocking)
        return PipelineTimes(end_s.max(axis=1), end_s, start_s, busy_s)
    start_s, end_s = np.empty_like(busy_s), np.empty_like(busy_s)
    for value in np.unique(count):
        rows = np.flatnonzero(count == value)
        group = _Rows.of(work_s[rows], link_s[rows], blocking[rows])
        start_s[rows], end_s[rows] = _timed(schedule, pp, vpp, int(value), group)
    return PipelineTimes(end_s.max(axis=1), end_s, start_s, busy_s)


def _timed(schedule: str, pp: int, vpp: int, count: int, rows: _Rows) -> tuple[Floats, Floats]:
    """Return start and end, shape (strategies, ranks), skipping rounds where that is exact."""
    start_s, end_s = np.empty((2, len(rows), pp))
    left = np.arange(len(rows))
    for round_size, short in _attempts(SCHEDULES[schedule], pp, count):
        plan = _plan(schedule, pp, vpp, count, round_size, short)
        found = np.empty(len(left), dtype=bool)
        step = max(64, BLOCK_CELLS // len(plan.graph.rank))
        for at in range(0, len(left), step):
            block = left[at:at + step]
            start_s[block], end_s[block], found[at:at + step] = plan.run(rows[block])
        left = left[~found]
        if not len(left):
            break
    return start_s, end_s


def _attempts(schedule: Schedule, pp: int, count: int) -> Iterator[tuple[int, int]]:
    """Yield the rounds to skip and the micro-batches left, more each time, all of them last."""
    group, rounds = schedule.group(pp, count), FIRST_ROUNDS
    while True:
        short = shortened(count, group, rounds)
        yield group, short
        if short == count:
            return
        if rounds == ODD_AFTER and schedule.any_round and count > 2 * short:
            for odd in range(pp - 1, max(2, pp - ODD_ROUNDS - 1), -1):
                yield odd, shortened(count, odd, short // odd)
        rounds *= 2


@dataclass(frozen=True, slots=True)
class _Plan:
    """A graph to run, and the rounds of the real step that it leaves out."""

    graph: Graph
    steady: Steady | None
    skipped: int

    def run(self, rows: _Rows) -> tuple[Floats, Floats, Bools]:
        """Return start and end, shape (strategies, ranks), and which strategies they hold for."""
        graph, steady = self.graph, self.steady
        end = _ends(graph, rows)
        first = graph.first
        start_s = (end[first] - rows.work_s[graph.stage[first] * WORKS + graph.work[first]]).T
        end_s = end[graph.last].T
        if not self.skipped:
            return start_s, end_s, np.ones(len(rows), dtype=bool)
        if steady is None:
            return start_s, end_s, np.zeros(len(rows), dtype=bool)
        round_s = end[steady.live] - end[steady.before]
        least, most = round_s.min(axis=0), round_s.max(axis=0)
        found = most - least <= SAME * end[steady.live].max(axis=0)
        return start_s, end_s + (self.skipped * (least + most) / 2)[:, None], found


def _plan(schedule: str, pp: int, vpp: int, count: int, round_size: int, short: int) -> _Plan:
    group = SCHEDULES[schedule].group(pp, count)
    graph, steady = _steady_graph(schedule, pp, vpp, group, round_size, short)
    return _Plan(graph, steady, (count - short) // round_size)


@lru_cache(maxsize=256)
def _steady_graph(schedule: str, pp: int, vpp: int, group: int, round_size: int,
                  short: int) -> tuple[Graph, Steady | None]:
    graph = build_graph(SCHEDULES[schedule].build(pp, vpp, short, group), pp, vpp)
    return graph, find_steady(graph, round_size)


def _ends(graph: Graph, rows: _Rows) -> Floats:
    """Return shape (actions + 1, strategies). The last row stands for "nothing before"."""
    assert NONE == -1
    end = np.zeros((len(graph.rank) + 1, len(rows)))
    cell, hop, held = graph.stage * WORKS + graph.work, graph.hop.astype(np.int64), graph.held
    blocks = bool(rows.held_s[1].any())
    for level in graph.levels:
        free = end[graph.previous[level]]
        if blocks:
            free += rows.held_s[held[level]]
        there = end[graph.needs[level]]
        there += rows.link_s[hop[level]]
        np.maximum(free, there, out=free)
        np.add(free, rows.work_s[cell[level]], out=end[level])
    return end
