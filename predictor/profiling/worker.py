"""The process that measures: ``python -m predictor.profiling.worker OUT``.

Alone, or as one of the ranks that torchrun or Slurm starts. It takes the points of the campaign
in OUT that need as many ranks as there are and have no answer yet, measures them one after the
other, and has each answer on the disk before it begins the next. It imports torch, numpy, PyYAML
and click, and nothing that a compute node may lack.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import click

from predictor.profiling.campaign import Campaign, plan
from predictor.profiling.environment import check_same, environment
from predictor.profiling.guard import require_quiet_cpu
from predictor.profiling.measure import Place, measure
from predictor.profiling.point import Kind, Outcome, Point, Status, UnsupportedError
from predictor.profiling.store import Journal, Store
from predictor.spec.errors import InputError

AGAIN = 75
"""Exit code of a worker whose process is spoilt: start another one for the points that are left."""
COMPLAINT = "complaint: "
"""Starts a line on standard error that holds one problem as JSON, before exit code 2."""
MOST_CRASHES = 2
"""Processes that a point may take down before it counts as failed."""
_PR_SET_PDEATHSIG = 1


@click.command("worker")
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
@click.option("--shard", default="0/1", show_default=True, metavar="I/N",
              help="Take every N-th of the points, from the I-th.")
@click.option("--key", default="", metavar="KEY", help="Measure this point alone.")
@click.option("--noisy", is_flag=True, help="Measure a CPU that others use too.")
@click.option("--check", is_flag=True, help="Record the environment and measure nothing.")
def main(out: Path, *, shard: str, key: str, noisy: bool, check: bool) -> None:
    """Measure the points of a campaign that need as many ranks as were started."""
    die_with_parent()
    try:
        if check:
            prepare(Store(out), noisy=noisy)
        else:
            work(Store(out), shard=shard_of(shard), key=key)
    except InputError as error:
        for problem in error.problems:
            click.echo(COMPLAINT + json.dumps(asdict(problem)), err=True)
        sys.exit(2)


def shard_of(text: str) -> tuple[int, int]:
    """Return (index, count) of ``I/N``."""
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and int(index) < int(count)):
        raise InputError.of("shard", f"a shard is I/N with I below N and got {text!r}",
                            "count from 0: 0/4 to 3/4", "--shard")
    return int(index), int(count)


def prepare(store: Store, *, noisy: bool) -> None:
    """Record the environment, or hold it against the one that is recorded.

    Raises
    ------
    InputError
        When they differ, there is no GPU, or other processes keep the CPU busy.
    """
    campaign = store.campaign()
    now = environment(campaign)
    recorded = store.environment()
    if recorded is not None:
        check_same(recorded, now)
    if campaign.device == "cpu" and not noisy:
        require_quiet_cpu()
    if recorded is None:
        store.keep_environment(now)


def work(store: Store, *, shard: tuple[int, int] = (0, 1), key: str = "") -> None:
    """Measure this worker's points; leaves with :data:`AGAIN` when its process is spoilt."""
    campaign = store.campaign()
    place = _place(campaign)
    points = plan(campaign)
    with _group(place), contextlib.ExitStack() as stack:
        journal = None
        if place.rank == 0:
            prepare(store, noisy=True)  # the runner has asked for quiet; torchrun's users have not
            journal = stack.enter_context(store.journal(shard[0]))
            if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")):
                settle(store, journal, shard[0])
        for index in _shared(_left(store, points, place, shard, key) if journal else [], place):
            _answer(points[index], place, journal, store)


def settle(store: Store, journal: Journal, shard: int, why: str = "") -> None:
    """Account for a shard's point that was in flight when its processes died."""
    key = store.begun(shard)
    if key is None:
        return
    journal.crash(key)
    if store.crashes()[key] >= MOST_CRASHES:
        message = f"took its process down {MOST_CRASHES} times"
        journal.end(Outcome(key, Status.FAILED, message=f"{message}: {why}" if why else message))


def _left(store: Store, points: Sequence[Point], place: Place, shard: tuple[int, int], key: str
          ) -> list[int]:
    answered = store.outcomes()
    return [index for index, point in enumerate(points)
            if point.ranks == place.ranks and point.key not in answered
            and (point.key == key if key else
                 point.kind is not Kind.STEP and index % shard[1] == shard[0])]


def _answer(point: Point, place: Place, journal: Journal | None, store: Store) -> None:
    if journal:
        journal.begin(point)
    began = time.perf_counter()
    with _watchdog(point, store):
        try:
            rows = tuple(measure(point, place))
            outcome = Outcome(point.key, Status.OK, rows)
        except UnsupportedError as error:  # every rank finds out the same
            outcome = Outcome(point.key, Status.UNSUPPORTED, message=_line(error))
        except Exception as error:
            outcome = _failure(point, error)
            if outcome.status is Status.FAILED or place.ranks > 1:
                _leave(outcome, store)
        finally:
            _tidy(place)
    seconds = time.perf_counter() - began
    if journal:
        journal.end(Outcome(outcome.key, outcome.status, outcome.rows, outcome.message, seconds))


def _failure(point: Point, error: Exception) -> Outcome:
    import torch

    lost = isinstance(error, torch.OutOfMemoryError | MemoryError) \
        or "can't allocate memory" in str(error)
    return Outcome(point.key, Status.OUT_OF_MEMORY if lost else Status.FAILED,
                   message=f"{type(error).__name__}: {_line(error)}")


def _leave(outcome: Outcome, store: Store) -> None:
    """End this process and with it its ranks, which may wait for it; its answer is kept."""
    with (store.folder / "journal-left.jsonl").open("ab+", buffering=0) as file:
        Journal(file, store.folder).end(outcome)
    os._exit(AGAIN)


@contextlib.contextmanager
def _watchdog(point: Point, store: Store) -> Iterator[None]:
    """End the process when a point runs out of time, wherever it hangs."""
    late = Outcome(point.key, Status.FAILED,
                   message=f"not done after {point.timeout_s:g} s", seconds=point.timeout_s)
    timer = threading.Timer(point.timeout_s, _leave, (late, store))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


def _tidy(place: Place) -> None:
    """Give back what the point allocated, so that the next one finds the memory free."""
    if place.device == "cuda":
        import gc

        import torch

        gc.collect()
        torch.cuda.empty_cache()


def _place(campaign: Campaign) -> Place:
    import torch

    ranks, rank = (int(os.environ.get(name, one)) for name, one in
                   (("WORLD_SIZE", "1"), ("RANK", "0")))
    if campaign.device == "cpu":
        torch.set_num_threads(campaign.threads)
    else:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    backend = "" if ranks == 1 else "nccl" if campaign.device == "cuda" else "gloo"
    return Place(
        campaign.device, campaign.gpu, rank, ranks, campaign.ranks_per_node or ranks, backend,
        campaign.precision, campaign.most_seconds, campaign.system or campaign.name,
        campaign.intra_link, campaign.inter_link, campaign.nic_gbps_per_gpu)


@contextlib.contextmanager
def _group(place: Place) -> Iterator[None]:
    if place.ranks == 1:
        yield
        return
    import torch.distributed as dist

    dist.init_process_group(place.backend, timeout=timedelta(minutes=30))
    try:
        yield
    finally:
        dist.destroy_process_group()


def _shared(indices: list[int], place: Place) -> list[int]:
    """Return rank 0's list on every rank."""
    if place.ranks == 1:
        return indices
    import torch.distributed as dist

    box = [indices]
    dist.broadcast_object_list(box, device=place.device)
    return box[0]


def die_with_parent() -> None:
    """Have the kernel kill this process when the one that started it is killed (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()
