"""Runs a campaign on this machine: starts workers, restarts them, and counts what they answer."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from predictor.profiling.campaign import Campaign, plan
from predictor.profiling.point import Kind, Outcome, Point, Status
from predictor.profiling.store import Store
from predictor.profiling.worker import AGAIN, COMPLAINT, die_with_parent, settle, shard_of
from predictor.spec.errors import InputError, Problem

Progress = Callable[[int, int], None]
LOOK_S = 1.0
"""Between looks at the journals: a CPU that is measured should do little else."""
IDLE_STARTS = 3
"""Workers in a row that may end without an answer before the campaign gives up."""
WORKER = ("-m", "predictor.profiling.worker")


def run(store: Store, *, noisy: bool, progress: Progress, shard: str = "0/1"
        ) -> dict[str, int]:
    """Measure every point in the store that has no answer yet; return the rows of each table.

    Raises
    ------
    InputError
        When this machine cannot be measured, the folder cannot be written, or workers end again
        and again without an answer.
    """
    shard_of(shard)
    campaign = store.campaign()
    try:
        _checked([sys.executable, *WORKER, str(store.folder), "--check",
                  *(["--noisy"] if noisy else [])], campaign)
    except BaseException:
        store.forget()
        raise
    points = plan(campaign)
    _refuse_what_does_not_fit(store, points, shard)
    try:
        for batch in _batches(points, shard):
            _measured(store, campaign, batch, shard, lambda done: progress(done, len(points)))
    except BaseException:
        with contextlib.suppress(InputError):  # the first reason is the one to tell
            store.assemble()
        raise
    return store.assemble()


@dataclass(frozen=True, slots=True)
class Batch:
    """What one worker measures."""

    ranks: int
    keys: frozenset[str]
    step: str = ""
    """Key of the one launch of a step that it is for."""


def _batches(points: Sequence[Point], shard: str) -> Iterator[Batch]:
    """Yield all points of so many ranks together, and each launch of a step alone.

    Steps are the first part's: parts that ran beside each other would slow one another.
    """
    index, count = shard_of(shard)
    mine: dict[int, set[str]] = {}
    for position, point in enumerate(points):
        if point.kind is not Kind.STEP and position % count == index:
            mine.setdefault(point.ranks, set()).add(point.key)
    yield from (Batch(ranks, frozenset(keys)) for ranks, keys in mine.items())
    if index == 0:
        yield from (Batch(point.ranks, frozenset({point.key}), point.key)
                    for point in points if point.kind is Kind.STEP)


def _measured(store: Store, campaign: Campaign, batch: Batch, shard: str,
              progress: Callable[[int], None]) -> None:
    """Start workers until every point of the batch has an answer."""
    index, _ = shard_of(shard)
    idle = 0
    while left := batch.keys - store.outcomes().keys():
        said = _work(_command(store, batch, shard), store, campaign, progress)
        now = batch.keys - store.outcomes().keys()
        if not now:
            return
        with store.journal(index) as journal:
            settle(store, journal, index, said)
        idle = idle + 1 if now == left else 0
        if idle >= IDLE_STARTS:
            raise InputError.of("worker-starts", f"workers with {batch.ranks} ranks end without "
                                f"an answer: {said or 'they say nothing'}",
                                "see that torch and its backend work here, then --resume")


def _command(store: Store, batch: Batch, shard: str) -> list[str]:
    launch = [sys.executable]
    if batch.ranks > 1:
        launch += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                   str(batch.ranks)]
    only = ["--key", batch.step] if batch.step else []
    return [*launch, *WORKER, str(store.folder), "--shard", shard, *only]


def _work(command: Sequence[str], store: Store, campaign: Campaign,
          progress: Callable[[int], None]) -> str:
    """Run a worker to its end; return the last line that says why it ended badly."""
    with tempfile.TemporaryFile() as said:
        process = _start(command, campaign, said.fileno())
        try:
            _watch(process, store, progress)
        finally:
            _stop(process)
        said.seek(0)
        text = said.read().decode(errors="replace")
    if process.returncode == 2:
        raise _refused(text)
    return "" if process.returncode in (0, AGAIN) else _reason(text, process.returncode)


def _watch(process: subprocess.Popen[bytes], store: Store, progress: Callable[[int], None]
           ) -> None:
    """Wait for a worker's end; the journals are read only when they have grown."""
    seen = -1
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_S)
            return
        if (size := store.size()) != seen:
            seen = size
            progress(len(store.outcomes()))


def _start(command: Sequence[str], campaign: Campaign, stderr: int) -> subprocess.Popen[bytes]:
    environment = os.environ | {"OMP_NUM_THREADS": str(campaign.threads),
                                "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo"),
                                "TOKENIZERS_PARALLELISM": "false"}
    if campaign.device == "cuda":
        environment.pop("GLOO_SOCKET_IFNAME")
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=stderr,
                            start_new_session=True, preexec_fn=die_with_parent)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Take down a worker with all its ranks, when it is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _checked(command: Sequence[str], campaign: Campaign) -> None:
    with tempfile.TemporaryFile() as said:
        process = _start(command, campaign, said.fileno())
        process.wait()
        said.seek(0)
        text = said.read().decode(errors="replace")
    if process.returncode == 2:
        raise _refused(text)
    if process.returncode:
        raise InputError.of("worker-starts", "the measuring process does not start: "
                            + _reason(text, process.returncode),
                            "install it: pip install 'predict-time[profile]'")


def _refused(text: str) -> InputError:
    """Return a worker's complaints as our own."""
    given = [json.loads(line.removeprefix(COMPLAINT)) for line in text.splitlines()
             if line.startswith(COMPLAINT)]
    if not given:
        return InputError.of("worker-starts", "the measuring process refuses its options: "
                             + _reason(text, 2), "report this")
    return InputError(Problem(**one) for one in given)


def _reason(text: str, code: int) -> str:
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    lines = [line.strip() for line in text.splitlines()
             if "Error" in line and "elastic" not in line]
    return (lines or [f"exit code {code}"])[-1][:300]


def _refuse_what_does_not_fit(store: Store, points: Sequence[Point], shard: str) -> None:
    """Answer the points that need more GPUs than there are."""
    gpus = (store.environment() or {}).get("gpus")
    if gpus is None:
        return
    answered = store.outcomes()
    with store.journal(shard_of(shard)[0]) as journal:
        for point in points:
            if point.ranks > gpus and point.key not in answered:
                journal.end(Outcome(point.key, Status.UNSUPPORTED,
                                    message=f"needs {point.ranks} GPUs and {gpus} are here"))

