"""``predict-time train``: measured tables in, a scored and recorded learned predictor out."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from predictor.cli.output import (
    Verbosity, check_outputs, emit, note, output_options, warn,
)
from predictor.cli.progress import Rows
from predictor.spec.errors import InputError
from predictor.version import __version__

if TYPE_CHECKING:
    from predictor.training.record import RunRecord

REGISTERED = {"predict-time-kernels": ("gemm", "attention", "memory_bound"),
              "predict-time-collectives": ("collectives",)}
"""Registered names and the models that a bundle needs to stand for them."""


@click.command("train", no_args_is_help=True)
@click.argument("family", metavar="FAMILY|all")
@click.option("--data", type=click.Path(path_type=Path), required=True, metavar="DIR",
              help="Folder of the measured tables (docs/training.md says which).")
@click.option("--runs", type=click.Path(path_type=Path, file_okay=False), default=Path("runs"),
              show_default=True, metavar="DIR", help="Folder that the run is written to.")
@click.option("--bundle", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Copy the bundle here too, replacing the one that is there.")
@click.option("--source", "sources", multiple=True, metavar="NAME",
              help="Table of kernels to learn from; may be given several times.  [default: all]")
@click.option("--search", is_flag=True, help="Try a small grid of settings first.")
@click.option("--created", metavar="TIME", default="",
              help="Time to write into the bundle: equal inputs then give equal bytes.")
@click.option("--log/--no-log", default=True, show_default=True,
              help="Log the run to MLflow (MLFLOW_TRACKING_URI, or a file in the user's cache).")
@click.option("--register", is_flag=True, help="Register the predictor in MLflow.")
@output_options
def command(
    *, family: str, data: Path, runs: Path, bundle: Path | None, sources: tuple[str, ...],
    search: bool, created: str, log: bool, register: bool, as_json: bool, output: Path | None,
) -> int:
    """Train the learned predictor from measured kernels and collectives.

    FAMILY is one model (gemm, attention, memory_bound, collectives), kernels or all. Every model
    is scored on shapes, GPUs and sources that it never saw. Everything is written to a run folder
    first and logged to MLflow after that, so that nothing is lost when a server is.
    """
    if register and not log:
        raise InputError.of("register-logged", "--register needs the run to be logged",
                            "leave --no-log out")
    check_outputs({"--output": output})
    given: dict[str, Any] = {"sources": sources} if sources else {}
    record = _train(family, data, runs, search=search, created=created, **given)
    if bundle is not None:
        _copy(record.bundle, bundle)
    versions = _publish(record, register=register) if log else {}
    emit(_document(record, versions), lambda: report(record, versions), as_json=as_json,
         output=output)
    return 0


def _train(family: str, data: Path, runs: Path, **options: Any) -> RunRecord:
    try:
        from predictor.training.train import Training, train
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("predictor"):
            raise
        raise InputError.of("extra-train", f"training needs {error.name}",
                            "install it: pip install 'predict-time[train]'") from None
    with Rows("fitting models") as progress:
        return train(Training(data, family, **options), runs, _say, progress)


def _say(what: str) -> None:
    """Tell what is going on, on a terminal or with -v."""
    if sys.stderr.isatty() and Verbosity.level == 0:
        click.echo(what, err=True)
    else:
        note(what)


def _copy(bundle: Path, target: Path) -> None:
    from predictor.bundle import copy_bundle

    copy_bundle(bundle, target)


def _publish(record: RunRecord, *, register: bool) -> dict[str, int]:
    """Log the run; return the registered versions by name."""
    from predictor.training import registry, tracking

    def complain(message: str) -> None:
        warn([message])

    if tracking.log_run(record, warn=complain) is None or not register:
        return {}
    models = {name.rsplit("_", 1)[0] for name in record.metrics}
    return {name: registry.register(record, name) for name, needed in REGISTERED.items()
            if models.issuperset(needed)}


def _document(record: RunRecord, versions: dict[str, int]) -> dict[str, Any]:
    return {
        "schema_version": 1, "predict_time_version": __version__, "predictor": record.digest,
        "calibration": None, "run": record.run_id, "folder": str(record.folder),
        "seconds": record.seconds, "registered": versions,
        "metrics": {name: {group: asdict(scores) for group, scores in groups.items()}
                    for name, groups in record.metrics.items()},
        "datasets": [asdict(one) for one in record.datasets]}


def report(record: RunRecord, versions: dict[str, int]) -> str:
    """Return the scores as text: one line per model and hold-out."""
    lines = [f"run {record.run_id}, predictor {record.digest[:12]}, {record.seconds:.0f} s", "",
             f"{'held out':<24}{'rows':>10}{'MAPE':>8}{'median':>8}{'bias':>8}{'covered':>9}"
             f"{'half width':>12}"]
    for name, groups in record.metrics.items():
        score = groups["all"]
        numbers = (score.mape, score.median_ape, score.bias, score.coverage, score.half_width)
        cells = [f"{'-' if value is None else format(value, '.1f')}" for value in numbers]
        lines.append(f"{name:<24}{score.rows:>10,}{cells[0]:>8}{cells[1]:>8}{cells[2]:>8}"
                     f"{cells[3]:>9}{cells[4]:>12}")
    lines += ["", f"written to {record.folder}"]
    lines += [f"registered {name} version {version}" for name, version in versions.items()]
    return "\n".join(lines)
