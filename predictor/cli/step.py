"""``predict-time step``: one job in, one prediction out."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

from predictor.cli.calibration_option import calibration_of, calibration_option
from predictor.cli.options import job_options
from predictor.cli.output import (
    check_outputs, emit, note, output_options, warn, write_file,
)
from predictor.cli.predictor_option import predictor_options, timer_of
from predictor.cli.request import build, read_settings
from predictor.cli.step_text import explanation, report
from predictor.spec.errors import InputError
from predictor.spec.rules import heuristics
from predictor.step.calibration import Calibration
from predictor.step.compose import Timer
from predictor.step.document import document
from predictor.step.predict import StepPrediction, predict_step
from predictor.version import __version__

OUT_OF_MEMORY = "does-not-fit"


@click.command("step", no_args_is_help=True)
@job_options
@click.option("--config", metavar="FILE", help="Job file in YAML or JSON; flags win over it.")
@predictor_options
@calibration_option
@click.option("--explain-input", is_flag=True,
              help="Show every setting and where it comes from.")
@click.option("--strict", is_flag=True, help="Make warnings errors.")
@click.option("--fail-on", type=click.Choice(["oom"]),
              help="Exit with 1 when the job does not fit in memory.")
@click.option("--trace", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write the step's timeline for Perfetto or chrome://tracing.")
@output_options
def command(
    *, config: str | None, predictor: str | None, analytic: bool,
    calibration: Path | None, explain_input: bool, strict: bool, fail_on: str | None,
    trace: Path | None, as_json: bool, output: Path | None,
    **flags: Any,
) -> int:
    """Predict the step time and the memory of one training job.

    The job is a model on a cluster (see `predict-time catalog`), its batch, and the strategy that
    spreads it. What is not given is the target framework's default.
    """
    check_outputs({"--output": output, "--trace": trace}, [config or "", calibration or ""])
    given = {name: value for name, value in flags.items() if value is not None}
    settings = {**(read_settings(config) if config else {}), **given}
    timer, digest = timer_of(predictor, analytic)
    correction = calibration_of(calibration, digest)
    prediction = _predict(settings, timer, correction, strict=strict)
    found = document(prediction, version=__version__, predictor=digest,
                     calibration=correction.digest if correction else None)
    if explain_input:
        click.echo(explanation(prediction.job, prediction.strategy, flags=given,
                               assumed=found["input"]["assumed"], settings=settings), err=as_json)
    emit(found, lambda: report(found), as_json=as_json, output=output)
    if trace is not None:
        _write_trace(trace, prediction)
    return 1 if fail_on == "oom" and found["memory"]["verdict"] == OUT_OF_MEMORY else 0


def _predict(settings: dict[str, Any], timer: Timer, correction: Calibration | None, *,
             strict: bool) -> StepPrediction:
    """Return the prediction; advice is a warning, or with ``strict`` an error."""
    start = time.perf_counter()
    job, strategy = build(settings)
    note(f"model {job.model.name}, cluster {job.cluster.name} with {job.cluster.num_gpus} GPUs")
    prediction = predict_step(job, strategy, timer=timer, calibration=correction)
    note(f"predicted in {time.perf_counter() - start:.3f} s")
    if correction is not None and job.cluster.gpu.name != correction.gpu:
        warn([f"the calibration holds for {correction.gpu} and changes nothing for "
              f"{job.cluster.gpu.name}"])
    advice = heuristics(prediction.job, prediction.strategy)
    if advice and strict:
        raise InputError(advice)
    warn(advice)
    return prediction


def _write_trace(path: Path, prediction: StepPrediction) -> None:
    from predictor.report.trace import chrome_trace  # only runs with --trace

    write_file(path, json.dumps(chrome_trace(prediction)))
