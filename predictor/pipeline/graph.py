"""The dependency graph of an order of work, levelled so that whole levels are timed at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from predictor.pipeline.orders import Action, Order, Work

Ints = NDArray[np.int64]
NONE = -1


@dataclass(frozen=True, slots=True)
class Graph:
    """Actions in topological order. All arrays have shape (actions,)."""

    rank: Ints
    stage: Ints
    """Global stage: chunk x pp + rank."""
    work: Ints
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
    first: Ints
    """Shape (ranks,): the first action of each rank."""


def build_graph(order: Order, pp: int, vpp: int) -> Graph:
    """Return the levelled graph of ``order``.

    Raises
    ------
    AssertionError
        When the order waits for itself: a schedule of ours that deadlocks is a bug.
    """
    place = {(rank, action): None for rank, actions in enumerate(order) for action in actions}
    level: dict[tuple[int, Action], int] = {}
    position = [0] * pp
    waiting = True
    while waiting:
        waiting = False
        for rank, actions in enumerate(order):
            while position[rank] < len(actions):
                action = actions[position[rank]]
                source = _source(rank, action, pp, vpp)
                if source is not None and source not in level:
                    break
                before = level[(rank, actions[position[rank] - 1])] if position[rank] else -1
                after = level[source] if source is not None else -1
                level[(rank, action)] = max(before, after) + 1
                position[rank] += 1
                waiting = True
    assert len(level) == len(place), "the order of work deadlocks"
    return _arrays(order, level, pp, vpp)


def _source(rank: int, action: Action, pp: int, vpp: int) -> tuple[int, Action] | None:
    """Return the action (with its rank) whose result ``action`` needs."""
    work, chunk, microbatch = action
    stage = chunk * pp + rank
    if work == Work.W:
        return rank, Action(Work.B, chunk, microbatch)
    if work == Work.F:
        if stage == 0:
            return None
        return (stage - 1) % pp, Action(Work.F, (stage - 1) // pp, microbatch)
    if stage == pp * vpp - 1:
        return rank, Action(Work.F, chunk, microbatch)
    return (stage + 1) % pp, Action(Work.B, (stage + 1) // pp, microbatch)


def _arrays(order: Order, level: dict[tuple[int, Action], int], pp: int, vpp: int) -> Graph:
    actions = sorted(level, key=lambda key: (level[key], key[0]))
    index = {key: position for position, key in enumerate(actions)}
    previous = np.full(len(actions), NONE)
    needs = np.full(len(actions), NONE)
    for rank, sequence in enumerate(order):
        for before, after in zip(sequence, sequence[1:], strict=False):
            previous[index[(rank, after)]] = index[(rank, before)]
    for key, position in index.items():
        source = _source(*key, pp, vpp)
        if source is not None:
            needs[position] = index[source]
    rank = np.array([key[0] for key in actions])
    work = np.array([int(key[1].work) for key in actions])
    stage = np.array([key[1].chunk * pp + key[0] for key in actions])
    hop = (needs != NONE) & (rank[needs] != rank)
    sends = np.zeros(len(actions), dtype=bool)
    sends[needs[hop]] = True
    bounds = np.flatnonzero(np.diff([level[key] for key in actions])) + 1
    edges = [0, *bounds.tolist(), len(actions)]
    return Graph(
        rank=rank, stage=stage, work=work, previous=previous, needs=needs, hop=hop, sends=sends,
        levels=tuple(slice(a, b) for a, b in zip(edges, edges[1:], strict=False)),
        last=np.array([index[(rank, sequence[-1])] for rank, sequence in enumerate(order)]),
        first=np.array([index[(rank, sequence[0])] for rank, sequence in enumerate(order)]))
