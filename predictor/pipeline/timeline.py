"""A simulated pipeline as slices of time, in the Trace Event Format of Perfetto and Chrome."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from predictor.pipeline.schedule import Work
from predictor.pipeline.simulator import Floats, Timeline, simulated

COLOURS = {Work.F: "thread_state_running", Work.B: "thread_state_iowait",
           Work.W: "thread_state_runnable"}
"""Names of the palette that trace viewers have; the format takes no others."""
NAMES = {Work.F: "forward", Work.B: "backward", Work.W: "weight gradient"}
COMPUTE, LINK = 0, 1
"""Tracks of a rank."""
TO_US = 1e6


@dataclass(frozen=True, slots=True)
class Slice:
    """Something a rank does for a while."""

    rank: int
    name: str
    category: str
    start_s: float
    duration_s: float
    track: int = COMPUTE
    colour: str = ""
    details: dict[str, int] = field(default_factory=dict)


def chrome_trace(schedule: str, vpp: int, num_microbatches: int, work_s: Floats,
                 link_s: float = 0.0, *, blocking: bool = False,
                 after: Iterable[Slice] = ()) -> dict[str, Any]:
    """Return the trace document of one step; ``json.dumps`` of it opens in ui.perfetto.dev.

    ``work_s`` has shape (global stages, kinds of work), seconds; ``after`` is what follows the
    pipeline, such as gradient reduction and the optimizer. Every rank is a process with a track
    for what it computes and one for what it sends. Times in the document are microseconds.
    """
    pp = len(work_s) // vpp
    timeline = simulated(schedule, pp, vpp, num_microbatches, work_s, link_s, blocking=blocking)
    slices = [*passes(timeline), *sends(timeline, link_s, vpp), *after]
    events = [*_names(pp, link_s > 0), *(_event(each) for each in slices)]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def passes(timeline: Timeline) -> Iterator[Slice]:
    """Return a slice for every action that takes time, named by work and micro-batch."""
    pp = len(timeline.order)
    for rank, actions in enumerate(timeline.order.tolist()):
        spans = zip(actions, timeline.start_s[rank].tolist(), timeline.end_s[rank].tolist(),
                    strict=True)
        for (work, chunk, microbatch), start, end in spans:
            if end > start:
                yield Slice(rank, f"{Work(work).name}{microbatch}", NAMES[Work(work)], start,
                            end - start, colour=COLOURS[Work(work)],
                            details={"chunk": chunk, "micro_batch": microbatch,
                                     "stage": chunk * pp + rank})


def sends(timeline: Timeline, link_s: float, vpp: int) -> Iterator[Slice]:
    """Return a slice for every result that crosses a link, on the sender's link track."""
    pp = len(timeline.order)
    if link_s <= 0 or pp == 1:
        return
    # A forward goes on unless it is the last stage's, a backward unless it is the first's.
    ends_at = {Work.F: pp * vpp - 1, Work.B: 0}
    for rank, actions in enumerate(timeline.order.tolist()):
        for (work, chunk, microbatch), end in zip(actions, timeline.end_s[rank].tolist(),
                                                  strict=True):
            stage = chunk * pp + rank
            if work in ends_at and stage != ends_at[work]:
                to = (rank + (1 if work == Work.F else -1)) % pp
                yield Slice(rank, f"send {Work(work).name}{microbatch} to {to}", "send", end,
                            link_s, LINK,
                            details={"chunk": chunk, "micro_batch": microbatch, "to_rank": to})


def _names(pp: int, linked: bool) -> Iterator[dict[str, Any]]:
    tracks = {COMPUTE: "compute", **({LINK: "link"} if linked and pp > 1 else {})}
    for rank in range(pp):
        yield _label("process_name", rank, COMPUTE, f"pipeline rank {rank}")
        yield {"ph": "M", "name": "process_sort_index", "pid": rank, "tid": COMPUTE,
               "args": {"sort_index": rank}}
        for track, name in tracks.items():
            yield _label("thread_name", rank, track, name)


def _label(kind: str, rank: int, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": rank, "tid": track, "args": {"name": name}}


def _event(each: Slice) -> dict[str, Any]:
    event = {"ph": "X", "name": each.name, "cat": each.category, "pid": each.rank,
             "tid": each.track, "ts": each.start_s * TO_US, "dur": each.duration_s * TO_US,
             "args": each.details}
    return {**event, "cname": each.colour} if each.colour else event
