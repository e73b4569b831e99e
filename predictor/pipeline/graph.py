"""The dependency graph of an order of work, levelled so that whole levels are timed at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predictor.pipeline.orders import Order, Work

Ints = NDArray[np.int64]
NONE = -1


@dataclass(frozen=True, slots=True)
class Graph:
    """Actions in topological order. All arrays have shape (actions,) unless said otherwise."""

    rank: Ints
    stage: Ints
    """Global stage: chunk x pp + rank."""
    work: Ints
    microbatch: Ints
    previous: Ints
    """The action before it on the same rank, NONE for the first."""
    needs: Ints
    """The action whose result it waits for, NONE when there is none."""
    hop: NDArray[np.bool_]
    """Whether that result crosses a link."""
    sends: NDArray[np.bool_]
    """Whether its own result crosses a link."""
    levels: tuple[slice, ...]
    last: Ints
    """Shape (ranks,): the last action of each rank."""


@dataclass(frozen=True, slots=True)
class _Sequences:
    """Actions by rank and position, shape (ranks, actions of a rank)."""

    work: Ints
    stage: Ints
    microbatch: Ints

    @classmethod
    def of(cls, order: Order, pp: int) -> _Sequences:
        ranks = np.arange(pp)[:, None]
        return cls(order[:, :, 0], order[:, :, 1] * pp + ranks, order[:, :, 2])


def build_graph(order: Order, pp: int, vpp: int) -> Graph:
    """Return the levelled graph of ``order``; every rank runs the same number of actions.

    The level of an action is the tick at which it would run if every action took one tick.

    Raises
    ------
    AssertionError
        When the order waits for itself: a schedule of ours that deadlocks is a bug.
    """
    sequences = _Sequences.of(order, pp)
    stages = pp * vpp
    microbatches = int(sequences.microbatch.max()) + 1
    shape = (len(Work), stages, microbatches)
    place = np.ravel_multi_index((sequences.work, sequences.stage, sequences.microbatch), shape)
    source = _sources(sequences, stages, shape)
    level = _levels(place, source, int(np.prod(shape)))
    return _arrays(sequences, place, source, level, stages)


def _sources(sequences: _Sequences, stages: int, shape: tuple[int, ...]) -> Ints:
    """Return, for each action, the place of the action whose result it needs."""
    work, stage, microbatch = sequences.work, sequences.stage, sequences.microbatch
    last = stage == stages - 1
    forward = work == Work.F
    backward = work == Work.B
    kind = np.where(forward | (backward & last), Work.F, Work.B)
    at = np.where(forward, stage - 1, np.where(backward & ~last, stage + 1, stage))
    place = np.ravel_multi_index((kind, np.maximum(at, 0), microbatch), shape)
    return np.where(at < 0, NONE, place)


def _levels(place: Ints, source: Ints, size: int) -> Ints:
    """Run one action per rank and tick, as soon as its result is there."""
    ranks, length = place.shape
    tick_of = np.full(size + 1, np.iinfo(np.int64).max)
    tick_of[NONE] = -1
    position = np.zeros(ranks, dtype=np.int64)
    level = np.full(place.shape, NONE)
    everyone = np.arange(ranks)
    tick = 0
    while True:
        waiting = everyone[position < length]
        if not len(waiting):
            return level
        at = position[waiting]
        ready = tick_of[source[waiting, at]] < tick
        runs, where = waiting[ready], at[ready]
        assert len(runs), "the order of work deadlocks"
        level[runs, where] = tick
        tick_of[place[runs, where]] = tick
        position[runs] += 1
        tick += 1


def _arrays(sequences: _Sequences, place: Ints, source: Ints, level: Ints, stages: int) -> Graph:
    ranks, length = place.shape
    order = np.argsort(level.ravel(), kind="stable")
    index = np.empty(ranks * length, dtype=np.int64)
    index[order] = np.arange(len(order))
    by_place = np.full(int(place.max()) + 2, NONE)
    by_place[place.ravel()] = index
    before = np.full((ranks, length), NONE)
    before[:, 1:] = index.reshape(ranks, length)[:, :-1]
    rank = np.repeat(np.arange(ranks), length)[order]
    needs = by_place[source.ravel()[order]]
    hop = (needs != NONE) & (rank[needs] != rank)
    sends = np.zeros(len(order), dtype=bool)
    sends[needs[hop]] = True
    bounds = np.flatnonzero(np.diff(level.ravel()[order])) + 1
    edges = [0, *bounds.tolist(), len(order)]
    return Graph(
        rank=rank, stage=sequences.stage.ravel()[order], work=sequences.work.ravel()[order],
        microbatch=sequences.microbatch.ravel()[order], previous=before.ravel()[order],
        needs=needs, hop=hop, sends=sends,
        levels=tuple(slice(a, b) for a, b in zip(edges, edges[1:], strict=False)),
        last=index.reshape(ranks, length)[:, -1])
