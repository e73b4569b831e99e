"""The dependency graph of an order of work, levelled so that whole levels are timed at once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from predictor.pipeline.schedule import Order, Work

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
NONE = -1
WORKS = len(Work)


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
    hop: Bools
    """Whether that result crosses a link."""
    held: Ints
    """Hops that keep the rank from starting after :attr:`previous` when sends block: one for
    sending the result of ``previous``, one for receiving what it needs; only one for both when
    they are an exchange with the same rank."""
    levels: tuple[slice, ...]
    first: Ints
    """Shape (ranks,): the first action of each rank."""
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
    shape = (WORKS, stages, microbatches)
    place = np.ravel_multi_index((sequences.work, sequences.stage, sequences.microbatch), shape)
    source = _sources(sequences, stages, shape)
    level = _levels(place, source, int(np.prod(shape)))
    return _arrays(sequences, place, source, level)


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
    level = np.full(place.size, NONE)
    place, source = place.ravel(), source.ravel()
    at = np.arange(ranks) * length
    stop = at + length
    tick = 0
    while len(at):
        ready = tick_of[source[at]] < tick
        runs = at[ready]
        assert len(runs), "the order of work deadlocks"
        level[runs] = tick
        tick_of[place[runs]] = tick
        at = at + ready
        if (at == stop).any():
            at, stop = at[at < stop], stop[at < stop]
        tick += 1
    return level.reshape(ranks, length)


def _arrays(sequences: _Sequences, place: Ints, source: Ints, level: Ints) -> Graph:
    ranks, length = place.shape
    order = np.argsort(level.ravel(), kind="stable")
    index = np.empty(ranks * length, dtype=np.int64)
    index[order] = np.arange(len(order))
    by_place = np.full(int(place.max()) + 2, NONE)
    by_place[place.ravel()] = index
    before = np.full((ranks, length), NONE)
    before[:, 1:] = index.reshape(ranks, length)[:, :-1]
    rank = np.repeat(np.arange(ranks), length)[order]
    previous, needs = before.ravel()[order], by_place[source.ravel()[order]]
    hop = (needs != NONE) & (rank[needs] != rank)
    bounds = np.flatnonzero(np.diff(level.ravel()[order])) + 1
    edges = [0, *bounds.tolist(), len(order)]
    return Graph(
        rank=rank, stage=sequences.stage.ravel()[order], work=sequences.work.ravel()[order],
        microbatch=sequences.microbatch.ravel()[order], previous=previous, needs=needs, hop=hop,
        held=_held(rank, previous, needs, hop),
        levels=tuple(slice(a, b) for a, b in pairwise(edges)),
        first=index.reshape(ranks, length)[:, 0], last=index.reshape(ranks, length)[:, -1])


def _held(rank: Ints, previous: Ints, needs: Ints, hop: Bools) -> Ints:
    """See :attr:`Graph.held`."""
    receiver = np.full(len(rank) + 1, NONE)  # the entry at NONE stays NONE
    receiver[needs[hop]] = rank[hop]
    sends = receiver[previous] != NONE
    exchange = sends & hop & (receiver[previous] == rank[needs])
    return np.asarray(sends.astype(np.int64) + hop - exchange)
