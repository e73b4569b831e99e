"""``predict-time evaluate``: a table of measurements in, how good the predictions are out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from predictor.cli.output import emit, note, output_options, warn, write_file
from predictor.spec.errors import InputError

if TYPE_CHECKING:
    from predictor.training.evaluate import EvaluationReport

QUANTITIES = ("step_time", "peak_memory", "kernel_time", "collective_time")
PREDICTORS = ("default", "analytic")
WORST = 10


@click.command("evaluate", no_args_is_help=True)
@click.argument("table", type=click.Path(path_type=Path))
@click.option("--quantity", type=click.Choice(QUANTITIES), default="step_time", show_default=True,
              help="What the table measures.")
@click.option("--where", metavar="EXPR",
              help="Rows to score, for example 'tier in {A,B} and workload == pretrain*'.")
@click.option("--group-by", metavar="COL",
              help="Column whose groups are scored apart.  [default: family, mem_kind or source]")
@click.option("--cv", metavar="COL",
              help="Refit the learned predictor without each group of COL and predict that group.")
@click.option("--per-row", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.csv",
              help="Write every row's measurement, prediction and breakdown (SI units).")
@click.option("--predictor", metavar="NAME|FOLDER", default="default", show_default=True,
              help="Learned predictor; this version has the analytic one only.")
@click.option("--analytic", is_flag=True,
              help="Use the analytic model only, which is what this version always does.")
@click.option("--fail-on", type=click.Choice(["oom", "refused"]),
              help="Exit with 1 when a run that fitted is predicted not to, or a row is refused.")
@output_options
def command(
    *, table: Path, quantity: str, where: str | None, group_by: str | None, cv: str | None,
    per_row: Path | None, predictor: str, analytic: bool, fail_on: str | None, as_json: bool,
    output: Path | None,
) -> int:
    """Score predictions against a TABLE of measurements (CSV or parquet).

    Every row is predicted from its configuration alone. A row that cannot be predicted is refused
    with the reason; see docs/evaluate.md for the columns and the scores.
    """
    del analytic
    _check_predictor(predictor, cv)
    found = _evaluate(table, quantity=quantity, where=where, group_by=group_by)
    document = found.document()
    emit(document, lambda: _text(found), as_json=as_json, output=output)
    if per_row is not None:
        write_file(per_row, found.per_row.to_csv(index=False, lineterminator="\n"))
    _warn(found)
    return 1 if _failed(found, fail_on) else 0


def _check_predictor(predictor: str, cv: str | None) -> None:
    if predictor not in PREDICTORS:
        raise InputError.of("known-predictor", f"there is no learned predictor {predictor!r}: this "
                            "version predicts analytically", "leave --predictor out", "predictor")
    if cv is not None:
        raise InputError.of("cross-validation", "there is no learned predictor to refit",
                            "leave --cv out: an analytic prediction has seen no row", "cv")


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
    return fail_on == "oom" and found.out_of_memory["ran_but_predicted_not_to_fit"] > 0


def _warn(found: EvaluationReport) -> None:
    if found.in_sample_rows:
        warn([f"{found.in_sample_rows} rows are in the predictor's training data: their errors are "
              "not what new rows would show"])
    if found.quantity == "peak_memory" and len(found.by_group) > 1:
        warn(["allocated, reserved and device memory are different quantities: read the groups, "
              "not the total"])


def _text(found: EvaluationReport) -> str:
    parts = [_head(found), _errors(found), _order(found), _refusals(found), _worst(found)]
    return "\n\n".join(part for part in parts if part)


def _head(found: EvaluationReport) -> str:
    untimed = f", {found.n_untimed} without a measurement" if found.n_untimed else ""
    speed = found.rows / found.seconds if found.seconds else 0.0
    return (f"{found.quantity}: {found.predicted} of {found.rows} rows predicted{untimed}, "
            f"{found.errors.rows} scored ({found.predictor}, {speed:,.0f} rows/s)")


def _errors(found: EvaluationReport) -> str:
    lines = [f"{found.group_by or 'rows':<28}{'rows':>6}{'MAPE':>9}{'median':>9}{'bias':>9}"
             f"{'max':>10}"]
    for name, scores in [*found.by_group.items(), ("all", found.errors)]:
        if scores.rows:
            lines.append(f"{name[:27]:<28}{scores.rows:>6}{_percent(scores.mape):>9}"
                         f"{_percent(scores.median_ape):>9}{_percent(scores.bias, sign=True):>9}"
                         f"{_percent(scores.max_ape):>10}")
    if len(found.by_group) > 1:
        lines.append(f"{'mean over groups':<28}{'':>6}{_percent(found.mape_group_mean):>9}")
    if found.interval_coverage is not None:
        lines.append(f"intervals cover {_percent(found.interval_coverage)} of the rows, half width "
                     f"{_percent(found.interval_half_width)}")
    return "\n".join(lines)


def _order(found: EvaluationReport) -> str:
    lines = []
    ranked = found.ranking
    if ranked.groups:
        lines.append(
            f"order of strategies in {ranked.groups} groups: Kendall tau "
            f"{ranked.kendall_tau_mean:.2f}, first choice slower than the best by "
            f"{_percent(ranked.top1_regret_mean)} (at most {_percent(ranked.top1_regret_max)})")
    memory = found.out_of_memory
    if memory["rows"]:
        lines.append(f"{memory['predicted_not_to_fit']} of {memory['rows']} runs that were out of "
                     "memory were predicted not to fit")
    if memory["ran_but_predicted_not_to_fit"]:
        lines.append(f"{memory['ran_but_predicted_not_to_fit']} runs that fitted were predicted "
                     "not to")
    return "\n".join(lines)


def _refusals(found: EvaluationReport) -> str:
    if not found.refused:
        return ""
    example: dict[str, dict[str, str]] = {}
    for entry in found.refused:
        example.setdefault(entry["why"].rsplit("[", 1)[-1].rstrip("]"), entry)
    lines = [f"{len(found.refused)} rows refused"]
    for kind, count in found.refused_by_kind.items():
        first = example.get(kind.split(" ")[0])
        lines.append(f"  {count:>5}  {kind}" + (f", such as {first['id']}: {first['why']}"[:120]
                                                if first else ""))
    return "\n".join(lines)


def _worst(found: EvaluationReport) -> str:
    rows = found.worst(WORST)
    if rows.empty:
        return ""
    lines = ["worst rows" + f"{'measured':>34}{'predicted':>13}{'error':>9}"]
    lines += [f"  {name[:28]:<28}{measured:>14.6g}{predicted:>13.6g}"
              f"{_percent(error, sign=True):>9}"
              for name, measured, predicted, error in zip(
                  rows["id"], rows["measured"], rows["predicted"], rows["error"], strict=True)]
    return "\n".join(lines)


def _percent(value: float | None, *, sign: bool = False) -> str:
    if value is None:
        return "-"
    return f"{value:+.1f} %" if sign else f"{value:.1f} %"
