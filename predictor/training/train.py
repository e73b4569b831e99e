"""Trains the learned predictor: tables in; bundle, scores, pictures and worst rows out."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from predictor.bundle import (
    Bundle, TrainedModel, TrainingManifest, TrainingSource, write_bundle,
)
from predictor.spec.errors import InputError
from predictor.timing.features import MODELS, unit_of
from predictor.training.conformal import LEVELS
from predictor.training.fit import PARAMS, FittedModel, fits_of, fitted_model, searched
from predictor.training.learning_rows import (
    LearningRows, collective_rows, host_bound, kernel_rows,
)
from predictor.training.plots import model_plots
from predictor.training.record import RunRecord, TrainingData, now, write_run
from predictor.training.scores import model_scores, worst_rows
from predictor.training.sources import KERNEL_SOURCES, Table, collective_tables, kernel_tables

COLLECTIVES = "collectives"
FAMILIES = ("all", "kernels", *MODELS, COLLECTIVES)
"""What may be trained: everything, all kernels, or one model."""
BUNDLE_NAME = "predict-time"
Progress = Callable[[str], None]
Count = Callable[[int, int], None]


def _ignore(done: int, total: int) -> None:
    """Count for nobody."""


@dataclass(frozen=True, slots=True)
class Training:
    """What a training is told."""

    data: Path
    """Folder of the measured tables."""
    family: str = "all"
    search: bool = False
    """Whether a small grid of settings is tried first."""
    seed: int = 0
    sources: tuple[str, ...] = KERNEL_SOURCES
    """Tables of kernels to read, of :data:`predictor.training.sources.KERNEL_SOURCES`."""
    created: str = ""
    """Time written into the bundle; equal times, tables and versions give equal bytes."""


def models_of(family: str) -> tuple[str, ...]:
    """Return the models that a family trains.

    Raises
    ------
    InputError
        When there is no such family.
    """
    if family not in FAMILIES:
        raise InputError.of("known-family", f"there is no family {family!r}",
                            f"choose one of {', '.join(FAMILIES)}", "family")
    groups = {"all": (*MODELS, COLLECTIVES), "kernels": MODELS}
    return groups.get(family, (family,))


def train(
    training: Training, runs: Path, progress: Progress, count: Count = _ignore
) -> RunRecord:
    """Fit every model of a family, score it on rows held out and write a run folder in ``runs``.

    ``progress`` hears what is being done, ``count`` how many of the fits are.

    Raises
    ------
    InputError
        When the data lacks a table that the family needs, or a folder cannot be written.
    """
    began, started = time.perf_counter(), now()
    names = models_of(training.family)
    tables, rows, rejected = learning_rows(training, names, progress)
    fitted = {}
    fits = sum(fits_of(rows[name]) for name in names)
    done = iter(range(1, fits + 1))

    def tick() -> None:
        count(next(done), fits)

    settings: dict[str, dict[str, Any]] = {}
    for name in names:
        settings[name] = PARAMS[name]
        if training.search:
            progress(f"{name}: trying settings")
            settings[name] = searched(rows[name], training.seed)
        progress(f"{name}: fitting {len(rows[name]):,} rows and holding groups out")
        fitted[name] = fitted_model(rows[name], seed=training.seed, tick=tick,
                                    **settings[name])
    progress("writing")
    with tempfile.TemporaryDirectory() as folder:
        bundle = bundle_of(fitted, settings, tables, training.created or started,
                           Path(folder) / "bundle")
        return _record(training, fitted, settings, tables, rejected, bundle,
                       Path(folder) / "bundle", runs / _run_id(started, bundle), started,
                       time.perf_counter() - began)


def learning_rows(
    training: Training, names: Sequence[str], progress: Progress
) -> tuple[list[Table], dict[str, LearningRows], dict[str, int]]:
    """Return the tables that were read, the rows of each model without bad ones, and how many of
    those there were for each reason."""
    rejected: dict[str, int] = {}
    tables: list[Table] = []
    rows: dict[str, LearningRows] = {}
    if set(names) & set(MODELS):
        progress("reading kernels")
        kernels = kernel_tables(training.data, wanted=training.sources, seed=training.seed)
        kernel_side, rejected = _kernel_rows(kernels)
        progress("; ".join(f"{count:,} {why}" for why, count in rejected.items()))
        rows |= kernel_side
        tables += kernels
    if COLLECTIVES in names:
        progress("reading collectives")
        collectives = collective_tables(training.data)
        rows[COLLECTIVES] = collective_rows(collectives)
        tables += collectives
    missing = [name for name in names if name not in rows]
    if missing:
        raise InputError.of("training-data", f"no measurements of {', '.join(missing)} in "
                            f"{training.data}", "see docs/training.md for the layout", "data")
    return tables, rows, rejected


def _kernel_rows(
    tables: Sequence[Table],
) -> tuple[dict[str, LearningRows], dict[str, int]]:
    """Return the rows of each model, and how many measurements were left out for each reason."""
    import pandas as pd

    from predictor.datasets.kernel_schema import validate
    from predictor.datasets.kernels import measurements
    from predictor.datasets.physical import far_from_hardware, reasons

    found = measurements(validate(pd.concat([table.frame for table in tables], ignore_index=True)))
    found = found.without(reasons(found))
    found = found.without(far_from_hardware(found))
    found = found.without(host_bound(found))
    return kernel_rows(found), found.refusals()


def bundle_of(
    fitted: dict[str, FittedModel], settings: dict[str, dict[str, Any]], tables: Sequence[Table],
    created: str, folder: Path,
) -> Bundle:
    """Write the bundle of the fitted models to ``folder`` and return it."""
    sources = tuple(TrainingSource(one.source, one.name, one.licence, one.rows, one.sha256)
                    for one in data_of(tables, fitted))
    models = [trained_model(one, settings[name]) for name, one in fitted.items()]
    return write_bundle(folder, models, TrainingManifest(BUNDLE_NAME, created, sources))


def data_of(tables: Sequence[Table], fitted: dict[str, FittedModel]) -> list[TrainingData]:
    """Return one entry per table and source in it that measurements were learned from."""
    used: Counter[tuple[bool, str]] = Counter()
    for name, one in fitted.items():
        once = np.unique(one.rows.measurement, return_index=True)[1]
        used.update((name == COLLECTIVES, str(source)) for source in one.rows.source[once])
    found = []
    for table in tables:
        for source, rows in table.frame.groupby("source"):
            count = used["collective" in table.frame, str(source)]
            if count:
                licence = " AND ".join(sorted(set(rows["licence"])))
                found.append(TrainingData(table.name, str(source), licence, count, table.sha256))
    return found


def trained_model(fitted: FittedModel, settings: dict[str, Any]) -> TrainedModel:
    """Return what a bundle keeps of a fitted model."""
    rows, regressor = fitted.rows, fitted.regressor
    columns, devices = fitted.devices
    return TrainedModel(
        name=rows.model, features=rows.features,
        units=tuple(unit_of(name) for name in rows.features), booster=regressor.booster_,
        low=regressor.low_, high=regressor.high_, groups=fitted.groups, centre=fitted.centre,
        levels=LEVELS, widths=fitted.widths, params=dict(settings), n_rows=len(rows),
        device_columns=columns, devices=devices)


def _record(
    training: Training, fitted: dict[str, FittedModel], settings: dict[str, dict[str, Any]],
    tables: Sequence[Table], rejected: dict[str, int], bundle: Bundle, folder: Path, run: Path,
    started: str, seconds: float,
) -> RunRecord:
    metrics = {name: scores for one in fitted.values()
               for name, scores in model_scores(one).items()}
    plots = {name: png for one in fitted.values() for name, png in model_plots(one).items()}
    params = {f"{model}_{name}": value for model, own in settings.items()
              for name, value in own.items()}
    params |= {f"rejected: {why}": count for why, count in rejected.items()}
    return write_run(
        run, started=started, seconds=seconds, git_commit=_commit(),
        command=" ".join(["predict-time", *sys.argv[1:]]),
        params=params | {"family": training.family, "seed": training.seed}, metrics=metrics,
        datasets=data_of(tables, fitted),
        bundle=folder, digest=bundle.digest, plots=plots,
        worst_rows=worst_rows(fitted).to_csv(index=False, lineterminator="\n"))


def _run_id(started: str, bundle: Bundle) -> str:
    return f"{started[:19].replace(':', '')}-{bundle.digest[:8]}"


def _commit() -> str:
    """Return the commit of the checkout the code runs from, ``unknown`` outside one."""
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent,
                              capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip() or "unknown"
