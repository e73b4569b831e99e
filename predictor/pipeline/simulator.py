"""One pipeline, action by action: what the batched recurrence must equal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predictor.pipeline.registry import SCHEDULES
from predictor.pipeline.schedule import Order, Work
from predictor.spec.errors import InputError

Floats = NDArray[np.float64]
Action = tuple[int, int, int]
"""Work, global stage, micro-batch."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """When every action of an order runs."""

    order: Order
    start_s: Floats
    """Shape (ranks, actions of a rank), as ``end_s``."""
    end_s: Floats

    @property
    def makespan_s(self) -> float:
        """End of the last action."""
        return float(self.end_s.max())


def simulate(order: Order, work_s: Floats, link_s: float = 0.0, *,
             blocking: bool = False) -> Timeline:
    """Run ``order`` and return when each action starts and ends: the longest path to it.

    ``work_s`` has shape (global stages, kinds of work), seconds. Links and ``blocking`` are as in
    :func:`predictor.pipeline.batched.pipeline_times`.

    Raises
    ------
    InputError
        When ranks wait for each other for ever.
    """
    return _Run(order, work_s.tolist(), link_s, link_s if blocking else 0.0).run()


def simulated(schedule: str, pp: int, vpp: int, num_microbatches: int, work_s: Floats,
              link_s: float = 0.0, *, blocking: bool = False) -> Timeline:
    """Return the timeline of a schedule by name."""
    order = SCHEDULES[schedule](pp, vpp, num_microbatches)
    return simulate(order, work_s, link_s, blocking=blocking)


class _Run:
    """The state of a simulation: how far every rank is, and what has been computed."""

    def __init__(self, order: Order, work_s: list[list[float]], link_s: float,
                 held_s: float) -> None:
        pp = len(order)
        self.order, self.work_s, self.link_s, self.held_s = order, work_s, link_s, held_s
        self.stages = len(work_s)
        self.actions = [[(work, chunk * pp + rank, microbatch) for work, chunk, microbatch in rows]
                        for rank, rows in enumerate(order.tolist())]
        self.done: dict[Action, float] = {}
        self.waiting: dict[Action, int] = {}
        self.starts: list[list[float]] = [[] for _ in range(pp)]
        self.ends: list[list[float]] = [[] for _ in range(pp)]

    def run(self) -> Timeline:
        runnable = list(range(len(self.actions)))
        while runnable:
            self._advance(runnable.pop(), runnable)
        if any(len(ends) < len(actions) for ends, actions in zip(self.ends, self.actions,
                                                                 strict=True)):
            raise InputError.of("schedule-deadlock", self._stuck(),
                                "order the actions so that every result is made before it is "
                                "waited for", "schedule")
        return Timeline(self.order, np.array(self.starts), np.array(self.ends))

    def _advance(self, rank: int, runnable: list[int]) -> None:
        """Run the actions of ``rank`` until one waits for a result that is not there."""
        actions, starts, ends = self.actions[rank], self.starts[rank], self.ends[rank]
        for position in range(len(ends), len(actions)):
            action = actions[position]
            needs = self._needs(action)
            if needs is not None and needs not in self.done:
                self.waiting[needs] = rank
                return
            start = self._start(rank, position, needs)
            starts.append(start)
            ends.append(start + self.work_s[action[1]][action[0]])
            self.done[action] = ends[-1]
            if action in self.waiting:
                runnable.append(self.waiting.pop(action))

    def _start(self, rank: int, position: int, needs: Action | None) -> float:
        source = self._rank(needs)
        receives = source is not None and source != rank
        there = self.done[needs] + self.link_s * receives if needs is not None else 0.0
        if position == 0:
            return max(self.held_s * receives, there)
        target = self._rank(self._feeds(self.actions[rank][position - 1]))
        sends = target is not None and target != rank
        exchange = sends and receives and source == target
        return max(self.ends[rank][-1] + self.held_s * (sends + receives - exchange), there)

    def _rank(self, action: Action | None) -> int | None:
        return None if action is None else action[1] % len(self.actions)

    def _needs(self, action: Action) -> Action | None:
        """Return the action whose result this one waits for."""
        work, stage, microbatch = action
        if work == Work.F:
            return (Work.F, stage - 1, microbatch) if stage else None
        if work == Work.W:
            return (Work.B, stage, microbatch)
        last = stage == self.stages - 1
        return (Work.F, stage, microbatch) if last else (Work.B, stage + 1, microbatch)

    def _feeds(self, action: Action) -> Action | None:
        """Return the action of another stage that waits for this one."""
        work, stage, microbatch = action
        if work == Work.F and stage < self.stages - 1:
            return (Work.F, stage + 1, microbatch)
        return (Work.B, stage - 1, microbatch) if work == Work.B and stage else None

    def _stuck(self) -> str:
        waits = [f"rank {rank} for the {Work(work).name} of stage {stage}, micro-batch {microbatch}"
                 for (work, stage, microbatch), rank in self.waiting.items()]
        return f"the schedule deadlocks: {'; '.join(sorted(waits))} never comes"
