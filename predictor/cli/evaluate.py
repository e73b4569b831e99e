"""``predict-time evaluate``: a table of measurements in, how good the predictions are out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from predictor.cli.calibration_option import calibration_of, calibration_option
from predictor.cli.evaluate_text import report
from predictor.cli.output import (
    check_outputs, emit, note, output_options, warn, write_file,
)
from predictor.cli.predictor_option import Chosen, chosen, predictor_options
from predictor.spec.errors import InputError

if TYPE_CHECKING:
    from predictor.training.evaluate import EvaluationReport

QUANTITIES = ("step_time", "peak_memory", "kernel_time", "collective_time")
OUT_OF_MEMORY = "does-not-fit"
LEARNED = ("kernel_time", "collective_time")
"""Quantities that the learned models are trained on."""


@click.command("evaluate", no_args_is_help=True)
@click.argument("table", type=click.Path(path_type=Path))
@click.option("--quantity", type=click.Choice(QUANTITIES), default="step_time", show_default=True,
              help="What the table measures.")
@click.option("--where", metavar="EXPR",
              help="Rows to score, for example 'tier in {A,B} and workload == pretrain*'.")
@click.option("--group-by", metavar="COL",
              help="Column whose groups are scored apart.  [default: family, mem_kind or source]")
@click.option("--cv", metavar="COL",
              help="Refused: `predict-time train` cross-validates and prints the scores.")
@click.option("--per-row", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.csv",
              help="Write every row's measurement, prediction and breakdown (SI units).")
@predictor_options
@calibration_option
@click.option("--fail-on", type=click.Choice(["oom", "refused"]),
              help="Exit with 1 when a row is predicted not to fit in memory, or is refused.")
@output_options
def command(
    *, table: Path, quantity: str, where: str | None, group_by: str | None, cv: str | None,
    per_row: Path | None, predictor: str | None, analytic: bool,
    calibration: Path | None, fail_on: str | None,
    as_json: bool, output: Path | None,
) -> int:
    """Score predictions against a TABLE of measurements (CSV or parquet).

    Every row is predicted from its configuration alone. A row that cannot be predicted is refused
    with the reason; see docs/evaluate.md for the columns and the scores.
    """
    _refuse_refitting(cv, quantity)
    check_outputs({"--output": output, "--per-row": per_row}, [table, calibration or ""])
    by = _chosen(predictor, analytic, quantity)
    correction = calibration_of(calibration, by.digest)
    found = _evaluate(table, quantity=quantity, where=where, group_by=group_by, timer=by.timer,
                      calibration=correction, predictor=by.digest, learned_from=by.sources)
    document = found.document()
    emit(document, lambda: report(found), as_json=as_json, output=output)
    if per_row is not None:
        write_file(per_row, found.per_row.to_csv(index=False, lineterminator="\n"))
    _warn(found)
    return 1 if _failed(found, fail_on) else 0


def _refuse_refitting(cv: str | None, quantity: str) -> None:
    if cv is None:
        return
    if quantity in LEARNED:
        raise InputError.of(
            "cross-validation", "cross-validation of kernels and collectives is done by "
            "predict-time train, which prints the scores by shape, GPU and source",
            "leave --cv out", "cv")
    raise InputError.of("cross-validation", f"nothing that predicts {quantity} was learned from "
                        "such rows: there is no learned predictor to refit",
                        "leave --cv out: the prediction has seen no row", "cv")


def _chosen(predictor: str | None, analytic: bool, quantity: str) -> Chosen:
    """Return the predictor; nothing is learned about memory, whichever it is."""
    found = chosen(predictor, analytic)
    if quantity == "peak_memory":
        return Chosen()
    return found if quantity in LEARNED else replace(found, sources=frozenset())


def _evaluate(table: Path, **options: Any) -> EvaluationReport:
    from predictor.cli.progress import Rows  # only once the arguments are right
    from predictor.training.evaluate import evaluate

    with Rows(f"predicting {table.name}") as progress:
        found = evaluate(table, progress=progress, **options)
    note(f"{found.rows} rows in {found.seconds:.2f} s")
    return found


def _failed(found: EvaluationReport, fail_on: str | None) -> bool:
    if fail_on == "refused":
        return bool(found.refused)
    return fail_on == "oom" and bool((found.per_row["verdict"] == OUT_OF_MEMORY).any())


def _warn(found: EvaluationReport) -> None:
    if found.in_sample_rows:
        warn([f"{found.in_sample_rows} rows are in the predictor's training data: their errors are "
              "not what new rows would show"])
    if found.quantity == "peak_memory" and len(found.by_group) > 1:
        warn(["allocated, reserved and device memory are different quantities: read the groups, "
              "not the total"])
