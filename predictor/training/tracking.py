"""Copies run folders to an MLflow tracking store.

A run folder (:mod:`predictor.training.record`) is complete without MLflow. What cannot be logged
now stays pending and is logged later; a run that was logged in part is taken up where it is, found
by its run id and its digest, and never logged twice. This module alone opens MLflow, and does so
without its global state: an explicit client, no active run.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from predictor.spec.errors import InputError
from predictor.training.record import RunRecord, Scores, mark_logged, pending, read_run
from predictor.version import __version__

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient
    from mlflow.entities import Run

URI_VARIABLE = "MLFLOW_TRACKING_URI"
EXPERIMENT = "predict-time"
MODEL = "bundle"
BUNDLE_PATH = "artifacts/bundle"
"""Where the bundle lies inside a logged model (MLflow keeps the folder's own name)."""
RUN_TAG, DIGEST_TAG, COMPLETE_TAG = (
    "predict_time.run_id", "predict_time.digest", "predict_time.complete")
MEASURES = ("mape", "median_ape", "bias", "coverage", "half_width", "rows")
PATIENCE = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
}
"""Seconds and tries that a server is given, unless the user sets them: MLflow's own defaults keep
a finished training waiting for minutes."""
LONGEST_NAME, LONGEST_DATA_DIGEST, LONGEST_REASON = 200, 36, 500
PARAMS_AT_ONCE, METRICS_AT_ONCE = 100, 1000
LOG_LATER = "predict-time models log --runs"

# One kernel of each shape family. A column that is empty in one of them is optional when served.
EXAMPLE = {
    "op": ["gemm", "attention"], "pass": ["fwd", "fwd"], "dtype": ["bf16", "bf16"],
    "gpu": ["h100-sxm-80gb", "h100-sxm-80gb"], "batch": [None, 1.0], "m": [4096.0, None],
    "n": [4096.0, None], "k": [4096.0, None], "seq": [None, 4096.0], "seq_kv": [None, 4096.0],
    "heads": [None, 32.0], "kv_heads": [None, 8.0], "head_dim": [None, 128.0],
    "head_dim_v": [None, 128.0], "window": [None, 1024.0], "causal": [None, "1"],
    "experts": [None, 8.0], "topk": [None, 2.0], "tp": [None, 1.0],
    "timing_kind": ["graph", None], "software": [None, "cudnn"],
}

Report = Callable[[str], None]


def _silent(_: str) -> None:
    pass


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=2)


def cache_folder() -> Path:
    """Return the folder of what may be deleted: PREDICT_TIME_CACHE or ~/.cache/predict-time."""
    given = os.environ.get("PREDICT_TIME_CACHE")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "predict-time"


def store_uri(tracking_uri: str | None = None) -> str:
    """Return the address of the store: the one given, MLFLOW_TRACKING_URI, or the user's own."""
    own = cache_folder().resolve() / "mlflow" / "mlflow.db"
    return tracking_uri or os.environ.get(URI_VARIABLE) or f"sqlite:///{own}"


def log_run(
    record: RunRecord, tracking_uri: str | None = None, *, progress: Report = _silent,
    warn: Report = _warn,
) -> str | None:
    """Copy a run to the tracking store and mark it as logged in its folder.

    Parameters
    ----------
    record
        The run; when its folder says that it is logged, nothing happens.
    tracking_uri
        Address of the store, see :func:`store_uri`.
    progress
        Called with the name of each part before it is logged.
    warn
        Called with one line when the store cannot be used; the run then stays pending.

    Returns
    -------
    str or None
        Run id in MLflow, None when the run stays pending.

    Raises
    ------
    InputError
        When the run folder cannot be read or marked.
    """
    known = read_run(record.folder)
    if known.logged is not None:
        return known.logged
    try:
        with connection(tracking_uri) as client:
            logged = _log(client, known, progress)
    except InputError as error:
        warn(f"run {known.run_id} is kept in {known.folder} but not logged: "
             f"{error.problems[0]}; log it later with: {LOG_LATER} {known.folder.parent}")
        return None
    mark_logged(known, logged)
    return logged


def log_pending(
    runs_folder: Path, tracking_uri: str | None = None, *, progress: Report = _silent,
    warn: Report = _warn,
) -> dict[str, str]:
    """Log the runs that are not logged yet, oldest first; return run id -> MLflow's run id.

    Raises
    ------
    InputError
        When ``runs_folder`` is no folder or a run in it cannot be read.
    """
    waiting = pending(runs_folder)
    if not waiting:
        return {}
    try:
        with connection(tracking_uri) as client:
            client.search_experiments(max_results=1)  # one wait for a dead server, not one per run
    except InputError as error:
        warn(f"{len(waiting)} runs stay pending: {error.problems[0]}; "
             f"log them later with: {LOG_LATER} {runs_folder}")
        return {}
    logged = {record.run_id: log_run(record, tracking_uri, progress=progress, warn=warn)
              for record in waiting}
    return {name: run for name, run in logged.items() if run is not None}


def metric_name(measure: str, family: str, group: str) -> str:
    """Return MLflow's name for a score, such as ``mape/gemm/bf16``."""
    return _name(f"{measure}/{family}/{group}")


def _name(wanted: str) -> str:
    """Return a name that MLflow takes for a parameter or a metric.

    What MLflow would refuse or is too long is told apart by a digest of the original.
    """
    name = re.sub(r"[^\w.\-/: ]", "_", wanted, flags=re.ASCII)
    name = re.sub(r"(^|/)[./ ]*(?=/|$)", r"\1_", name)[:LONGEST_NAME]  # no empty or dotted parts
    if name == wanted:
        return name
    return f"{name}-{hashlib.sha256(wanted.encode()).hexdigest()[:8]}"


@contextmanager
def connection(tracking_uri: str | None = None) -> Iterator[MlflowClient]:
    """Yield a client of the store that gives up within seconds.

    Raises
    ------
    InputError
        When MLflow is not installed, or the store fails or cannot be reached.
    """
    uri = store_uri(tracking_uri)
    client_of = _load()
    failures = _failures()
    # The registry finds a logged model through the address that the environment names.
    with _defaults(PATIENCE), _environment({URI_VARIABLE: uri}):
        try:
            _make_folder(uri)
            yield client_of(tracking_uri=uri, registry_uri=uri)
        except failures as error:
            raise _unusable(uri, error) from error


def model_of(client: MlflowClient, run_id: str) -> str | None:
    """Return the id of the model that a run logged, None when it logged none to the end."""
    for model in _models(client.get_run(run_id)):
        if str(client.get_logged_model(model).status) == "READY":
            return model
    return None


def _load() -> type[MlflowClient]:
    """Import MLflow: no telemetry, and no word on standard error but warnings."""
    if importlib.util.find_spec("mlflow") is None:
        raise InputError.of("tracking-installed", "MLflow is not installed",
                            "install predict-time[tracking]")
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = os.environ["DO_NOT_TRACK"] = "true"
    from mlflow import MlflowClient

    for name in ("mlflow.store.db.utils", "mlflow.pyfunc", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return MlflowClient


def _failures() -> tuple[type[Exception], ...]:
    """Return what a store raises when it is wrong, full, locked, away or dying."""
    from mlflow.exceptions import MlflowException
    from requests.exceptions import RequestException

    found: list[type[Exception]] = [MlflowException, RequestException, OSError]
    with suppress(ImportError):  # mlflow-skinny talks to servers without it
        from sqlalchemy.exc import SQLAlchemyError

        found.append(SQLAlchemyError)
    return tuple(found)


@contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a while."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _defaults(settings: Mapping[str, str]) -> AbstractContextManager[None]:
    """Set environment variables that are not set, for a while."""
    return _environment({name: value for name, value in settings.items()
                         if name not in os.environ})


def _unusable(uri: str, error: Exception) -> InputError:
    reason = " ".join(str(error).split()).replace(uri, _shown(uri))[:LONGEST_REASON]
    return InputError.of("tracking-store", f"the tracking store {_shown(uri)} fails: {reason}",
                         "start it or set MLFLOW_TRACKING_URI")


def _shown(uri: str) -> str:
    """Return the address without the password that it may hold."""
    return re.sub(r"//[^/@]*@", "//", uri)


def _database(uri: str) -> Path | None:
    """Return the file of a SQLite store."""
    path = uri.removeprefix("sqlite:///").split("?")[0]
    return Path(path).resolve() if uri.startswith("sqlite:///") else None


def _make_folder(uri: str) -> None:
    file = _database(uri)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)


def _log(client: MlflowClient, record: RunRecord, progress: Report) -> str:
    """Log every part of a run, each of which may be repeated; return MLflow's run id."""
    progress("run")
    run = _run(client, record)
    run_id = str(run.info.run_id)
    if run.data.tags.get(COMPLETE_TAG) == "true":
        return run_id
    for name, part in _PARTS.items():
        progress(name)
        part(client, run_id, record)
    client.set_terminated(run_id, "FINISHED",
                          end_time=record.started_ms + round(1000 * record.seconds))
    client.set_tag(run_id, COMPLETE_TAG, "true")
    return run_id


def _run(client: MlflowClient, record: RunRecord) -> Run:
    """Return the run in the store, a new one when there is none yet."""
    experiment = _experiment(client)
    found = client.search_runs([experiment], f"tags.`{RUN_TAG}` = '{record.run_id}'")
    for run in found:
        if run.data.tags.get(DIGEST_TAG) == record.digest:
            return run
    tags = {RUN_TAG: record.run_id, DIGEST_TAG: record.digest,
            "mlflow.source.git.commit": record.git_commit, "mlflow.source.name": record.command,
            "predict_time.version": __version__}
    return client.create_run(experiment, start_time=record.started_ms, tags=tags,
                             run_name=record.run_id)


def _experiment(client: MlflowClient) -> str:
    """Return the id of the experiment, made when absent.

    A database would put artifacts into ``mlruns`` of whatever the current folder is.
    """
    found = client.get_experiment_by_name(EXPERIMENT)
    if found is not None:
        return str(found.experiment_id)
    return client.create_experiment(EXPERIMENT, artifact_location=_artifacts(client.tracking_uri))


def _artifacts(uri: str) -> str | None:
    """Return where artifacts go: beside a SQLite file; a server decides on its own."""
    if urlsplit(uri).scheme in ("http", "https"):
        return None
    file = _database(uri)
    folder = file.parent if file is not None else cache_folder().resolve() / "mlflow"
    return (folder / "artifacts").as_uri()


def _log_params(client: MlflowClient, run_id: str, record: RunRecord) -> None:
    from mlflow.entities import Param

    params = [Param(_name(name), str(value)) for name, value in record.params.items()]
    for start in range(0, len(params), PARAMS_AT_ONCE):
        client.log_batch(run_id, params=params[start:start + PARAMS_AT_ONCE])


def _log_metrics(client: MlflowClient, run_id: str, record: RunRecord) -> None:
    from mlflow.entities import Metric

    # The moment is the run's own: logged again, a value replaces itself.
    metrics = [Metric(name, value, record.started_ms, 0)
               for name, value in [("seconds", record.seconds), *_scores(record)]]
    for start in range(0, len(metrics), METRICS_AT_ONCE):
        client.log_batch(run_id, metrics=metrics[start:start + METRICS_AT_ONCE])


def _scores(record: RunRecord) -> Iterator[tuple[str, float]]:
    for family, groups in record.metrics.items():
        for group, scores in groups.items():
            for measure, value in _known(scores):
                yield metric_name(measure, family, group), value


def _known(scores: Scores) -> Iterator[tuple[str, float]]:
    for measure in MEASURES:
        value = getattr(scores, measure)
        if value is not None:
            yield measure, float(value)


def _log_datasets(client: MlflowClient, run_id: str, record: RunRecord) -> None:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    if record.datasets:
        client.log_inputs(run_id, [
            DatasetInput(
                Dataset(name=one.name, digest=one.sha256[:LONGEST_DATA_DIGEST],
                        source_type="predict-time", source=json.dumps({"source": one.source}),
                        profile=json.dumps({"rows": one.rows})),
                [InputTag("licence", one.licence), InputTag("sha256", one.sha256)])
            for one in record.datasets])


def _log_files(client: MlflowClient, run_id: str, record: RunRecord) -> None:
    for plot in record.plots:
        client.log_artifact(run_id, str(plot), "plots")
    for file in (record.worst_rows, record.folder / "run.json"):
        client.log_artifact(run_id, str(file))


def _log_model(client: MlflowClient, run_id: str, record: RunRecord) -> None:
    """Log the bundle as a model of its own, which the run names as its output."""
    from mlflow.entities import LoggedModelOutput

    if model_of(client, run_id) is not None:
        return
    run = client.get_run(run_id)
    begun = _models(run)
    if begun:
        model_id = begun[0]
    else:
        model = client.create_logged_model(
            run.info.experiment_id, MODEL, source_run_id=run_id, model_type="predict-time bundle",
            tags={DIGEST_TAG: record.digest, RUN_TAG: record.run_id})
        model_id = model.model_id
        client.log_outputs(run_id, [LoggedModelOutput(model_id, 0)])
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "model"
        save_model(saved, record.bundle, run_id=run_id, model_id=model_id)
        client.log_model_artifacts(model_id, str(saved))
    client.finalize_logged_model(model_id, "READY")


def _models(run: Run) -> list[str]:
    return [one.model_id for one in run.outputs.model_outputs] if run.outputs else []


def save_model(folder: Path, bundle: Path, *, run_id: str, model_id: str) -> None:
    """Write the MLflow model that serves ``bundle``: a code file and the bundle as it is."""
    with warnings.catch_warnings():
        # MLflow warns about the hints of its own chat models when they are imported.
        warnings.filterwarnings("ignore", ".*Any type hint is inferred as AnyType", UserWarning)
        from mlflow.models import Model, infer_signature
        from mlflow.pyfunc import save_model as save

    example = input_example()
    save(
        str(folder), python_model=str(Path(__file__).with_name("served.py")),
        artifacts={"bundle": str(bundle)}, signature=infer_signature(example),
        input_example=example, pip_requirements=requirements(),
        mlflow_model=Model(run_id=run_id, model_id=model_id))


def input_example() -> pd.DataFrame:
    """Return two kernels with every column that a served bundle reads."""
    import pandas as pd

    return pd.DataFrame(EXAMPLE)


def requirements() -> list[str]:
    """Return what serving needs, at the versions that trained.

    Named here because MLflow's own search would load the model, and would write ``xgboost`` where
    ``xgboost-cpu`` is meant.
    """
    found = [f"predict-time=={__version__}"]
    for name in ("mlflow", "mlflow-skinny", "numpy", "pandas", "xgboost", "xgboost-cpu"):
        with suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name}=={importlib.metadata.version(name)}")
    return found


_PARTS: dict[str, Callable[[Any, str, RunRecord], None]] = {
    "params": _log_params, "metrics": _log_metrics, "datasets": _log_datasets,
    "files": _log_files, "model": _log_model,
}
