"""``predict-time profile``: a campaign file in, measured tables out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from predictor.cli.output import check_outputs, emit, output_options, warn
from predictor.cli.progress import Rows
from predictor.version import __version__

if TYPE_CHECKING:
    from predictor.profiling.point import Outcome

NO_ANSWER = 3
SHOWN_FAILURES = 5


@click.command("profile", no_args_is_help=True)
@click.argument("campaign", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Folder that is written to.  [default: campaigns/NAME]")
@click.option("--resume", is_flag=True, help="Go on with the campaign that DIR holds.")
@click.option("--noisy", is_flag=True, help="Measure a CPU that others use too.")
@click.option("--shard", default="0/1", show_default=True, metavar="I/N",
              help="Measure every N-th point, from the I-th: one part of a campaign that several "
              "nodes share. Steps are measured by part 0.")
@output_options
def command(
    *, campaign: Path, out: Path | None, resume: bool, noisy: bool, shard: str, as_json: bool,
    output: Path | None,
) -> int:
    """Measure what CAMPAIGN lists on this machine: kernels, layers, collectives, training steps.

    Every point is on the disk before the next begins, and --resume repeats none. A point that
    does not fit, is not supported or takes its process down is an answer too. The folder then
    feeds `predict-time train --data` and its steps.csv feeds `predict-time evaluate`.
    """
    from predictor.profiling.campaign import read_campaign
    from predictor.profiling.runner import run
    from predictor.profiling.store import Store

    check_outputs({"--output": output}, [campaign])
    asked = read_campaign(campaign)
    store = Store(out or Path("campaigns") / asked.name)
    store.open(asked, resume=resume)
    began = monotonic()
    with Rows(f"measuring {asked.name}") as progress:
        rows = run(store, noisy=noisy, progress=progress, shard=shard)
    outcomes = store.outcomes()
    document = _document(store.folder, outcomes, rows, monotonic() - began)
    _complain(outcomes)
    emit(document, lambda: report(document), as_json=as_json, output=output)
    return 0 if document["points"].get("ok") else NO_ANSWER


def _document(folder: Path, outcomes: Mapping[str, Outcome], rows: Mapping[str, int],
              seconds: float) -> dict[str, Any]:
    counts = Counter(str(outcome.status) for outcome in outcomes.values())
    counts["planned"] = rows["points"] - counts.total()
    return {
        "schema_version": 1, "predict_time_version": __version__, "predictor": None,
        "calibration": None, "folder": str(folder), "seconds": seconds,
        "points": {name: count for name, count in counts.items() if count},
        "rows": dict(rows)}


def _complain(outcomes: Mapping[str, Outcome]) -> None:
    failed = Counter(one.message for one in outcomes.values() if one.status == "failed")
    warn(f"{count} point{'s' * (count > 1)} failed: {message}"
         for message, count in failed.most_common(SHOWN_FAILURES))


def report(document: Mapping[str, Any]) -> str:
    """Return what was measured as text."""
    points = ", ".join(f"{count:,} {name.replace('_', ' ')}"
                       for name, count in document["points"].items())
    lines = [f"points  {points}, {document['seconds']:.0f} s", ""]
    lines += [f"{count:>9,}  {name}" for name, count in document["rows"].items()]
    return "\n".join([*lines, "", f"written to {document['folder']}"])
