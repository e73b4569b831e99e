"""The run folder: everything that a training produced, on the local disk before anything else.

::

    <runs>/<run_id>/run.json         what ran, on what data, and how good it is
                    bundle/          the learned predictor, opaque here
                    plots/*.png
                    worst_rows.csv   the rows with the largest errors

A tracking server sees copies of it (:mod:`predictor.training.tracking`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ConfigDict

from predictor.spec.errors import InputError, Problem
from predictor.spec.parse import parse_json

FORMAT_VERSION = 1
RUN_FILE, BUNDLE, PLOTS, WORST_ROWS = "run.json", "bundle", "plots", "worst_rows.csv"
LARGEST_RUN_FILE_BYTES = 16_000_000
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_STRICT = ConfigDict(strict=True, extra="forbid")

Param = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Scores:
    """Errors of the predictions of one group of rows, in percent; None where not known."""

    mape: float | None
    median_ape: float | None
    bias: float | None
    coverage: float | None
    """Share of the measurements inside their interval."""
    half_width: float | None
    """Mean half width of the intervals, relative to the prediction."""
    rows: int

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class TrainingData:
    """One table that was learned from or scored on."""

    name: str
    source: str
    licence: str
    """SPDX identifier."""
    rows: int
    sha256: str

    __pydantic_config__ = _STRICT


Metrics = Mapping[str, Mapping[str, Scores]]
"""Family (``gemm``) -> group, or ``all`` -> scores of the rows held out."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One training: what ``run.json`` says, and where its folder is."""

    folder: Path
    run_id: str
    started: str
    """Start of the training, ISO 8601 with its offset from UTC."""
    seconds: float
    git_commit: str
    command: str
    params: Mapping[str, Param]
    metrics: Metrics
    datasets: tuple[TrainingData, ...]
    digest: str
    """Digest of the bundle."""
    logged: str | None = None
    """Run id that MLflow gave, None while the run waits to be logged."""

    @property
    def bundle(self) -> Path:
        """Folder of the learned predictor."""
        return self.folder / BUNDLE

    @property
    def plots(self) -> tuple[Path, ...]:
        """Pictures, in the order of their names."""
        return tuple(sorted((self.folder / PLOTS).glob("*.png")))

    @property
    def worst_rows(self) -> Path:
        """Table of the rows with the largest errors."""
        return self.folder / WORST_ROWS

    @property
    def started_ms(self) -> int:
        """Start of the training in milliseconds since 1970, as MLflow counts."""
        return int(datetime.fromisoformat(self.started).timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class _RunFile:
    """The keys of ``run.json``."""

    format_version: int
    run_id: str
    started: str
    seconds: float
    git_commit: str
    command: str
    params: dict[str, str | int | float | bool | None]
    metrics: dict[str, dict[str, Scores]]
    datasets: list[TrainingData]
    digest: str
    logged: str | None

    __pydantic_config__ = _STRICT


def write_run(
    folder: Path, *, started: str, seconds: float, git_commit: str, command: str,
    params: Mapping[str, Param], metrics: Metrics, datasets: Sequence[TrainingData],
    bundle: Path, digest: str, plots: Mapping[str, bytes], worst_rows: str,
) -> RunRecord:
    """Write the run folder ``folder``, all of it or nothing, and return its record.

    Parameters
    ----------
    folder
        New folder; its name is the run id.
    started, seconds
        ISO 8601 start with its offset, and how long the training took.
    git_commit, command
        Code and command line that repeat the run.
    params
        What the training was told, by name.
    metrics
        Scores by family and group.
    datasets
        Tables that were learned from.
    bundle, digest
        Folder of the learned predictor, which is copied, and its digest.
    plots
        PNG bytes by file name (``gemm.png``).
    worst_rows
        CSV text.

    Raises
    ------
    InputError
        When the folder exists, cannot be written, or a value cannot be recorded.
    """
    record = RunRecord(
        folder=folder, run_id=folder.name, started=started, seconds=seconds,
        git_commit=git_commit, command=command, params=dict(params), metrics=metrics,
        datasets=tuple(datasets), digest=digest)
    text = _text(record)
    _parse(folder, text)  # what cannot be read back is refused before it is written
    _refuse(_output_problems(folder, bundle, plots))
    with _writing(folder) as partial:
        shutil.copytree(bundle, partial / BUNDLE)
        (partial / PLOTS).mkdir()
        for name, content in plots.items():
            (partial / PLOTS / name).write_bytes(content)
        (partial / WORST_ROWS).write_text(worst_rows, encoding="utf-8")
        (partial / RUN_FILE).write_text(text, encoding="utf-8")
    return record


def read_run(folder: Path) -> RunRecord:
    """Return the record of the run folder ``folder``.

    Raises
    ------
    InputError
        When ``run.json`` is missing or wrong (all problems), or the bundle or the worst rows are
        missing.
    """
    record = _parse(folder, _read_text(folder / RUN_FILE))
    absent = [name for name, there in ((BUNDLE, record.bundle.is_dir()),
                                       (WORST_ROWS, record.worst_rows.is_file())) if not there]
    _refuse([Problem("run-folder", f"{folder} has no {name}", "train again", "run")
             for name in absent])
    return record


def pending(runs_folder: Path) -> list[RunRecord]:
    """Return the records of the runs in ``runs_folder`` that are not logged yet, oldest first.

    Raises
    ------
    InputError
        When ``runs_folder`` is no folder or a run in it cannot be read.
    """
    if not runs_folder.is_dir():
        raise InputError.of("runs-folder", f"there is no folder {runs_folder}",
                            "name the folder that holds the run folders", "runs")
    # A hidden folder is a run that was being written when its process ended.
    folders = [path.parent for path in sorted(runs_folder.glob(f"*/{RUN_FILE}"))
               if not path.parent.name.startswith(".")]
    records = [read_run(folder) for folder in folders]
    waiting = [record for record in records if record.logged is None]
    return sorted(waiting, key=lambda record: (record.started_ms, record.run_id))


def mark_logged(record: RunRecord, logged: str) -> RunRecord:
    """Write into ``run.json`` that MLflow knows this run as ``logged``; return the new record.

    Raises
    ------
    InputError
        When the file cannot be written; it then holds what it held before.
    """
    marked = replace(record, logged=logged)
    target = record.folder / RUN_FILE
    partial = target.with_name(f".{RUN_FILE}.{os.getpid()}")
    try:
        partial.write_text(_text(marked), encoding="utf-8")
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise _unwritable(target, error) from None
    return marked


def _text(record: RunRecord) -> str:
    """Return ``run.json``, keys sorted.

    Raises
    ------
    InputError
        When a parameter or a score is no plain finite value.
    """
    kept = {field.name: getattr(record, field.name) for field in fields(record)
            if field.name != "folder"}
    kept["metrics"] = {family: {group: asdict(scores) for group, scores in groups.items()}
                       for family, groups in record.metrics.items()}
    kept["datasets"] = [asdict(one) for one in record.datasets]
    document = {"format_version": FORMAT_VERSION, **kept}
    try:
        return json.dumps(document, indent=2, sort_keys=True, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise InputError.of("run-values", f"the run cannot be recorded: {error}",
                            "use finite numbers, strings, booleans and null", "run") from None


def _parse(folder: Path, text: str) -> RunRecord:
    try:
        found = parse_json(_RunFile, text)
    except InputError as error:
        raise InputError([Problem(one.rule, f"{folder / RUN_FILE}: {one.message}", one.remedy,
                                  one.where) for one in error.problems]) from None
    _refuse(_value_problems(folder, found))
    values = {field.name: getattr(found, field.name) for field in fields(found)
              if field.name != "format_version"}
    return RunRecord(folder=folder, **{**values, "datasets": tuple(found.datasets)})


def _value_problems(folder: Path, found: _RunFile) -> Iterator[Problem]:
    if found.format_version != FORMAT_VERSION:
        yield Problem("run-format", f"{folder / RUN_FILE} has format {found.format_version}, this "
                      f"version reads {FORMAT_VERSION}", "train again", "format_version")
    if not _RUN_ID.fullmatch(found.run_id):
        yield Problem("run-id", f"{found.run_id!r} is no run id",
                      "use letters, digits, dots, dashes and underscores", "run_id")
    if not _is_moment(found.started):
        yield Problem("run-start", f"{found.started!r} is no moment with an offset from UTC",
                      "write it as 2026-01-31T12:00:00+00:00", "started")
    for place, one in enumerate(found.datasets):
        if not _SHA256.fullmatch(one.sha256):
            yield Problem("data-digest", f"{one.sha256!r} is no SHA-256", "write 64 hex digits",
                          f"datasets.{place}.sha256")


def _is_moment(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).utcoffset() is not None
    except ValueError:
        return False


def now() -> str:
    """Return this moment the way ``started`` is written."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _output_problems(folder: Path, bundle: Path, plots: Mapping[str, bytes]) -> Iterator[Problem]:
    if folder.exists():
        yield Problem("run-exists", f"{folder} exists already", "choose another run id", "run")
    if not bundle.is_dir():
        yield Problem("run-bundle", f"there is no folder {bundle}", "write the bundle first",
                      "bundle")
    for name in plots:
        if Path(name).name != name or not name.endswith(".png"):
            yield Problem("plot-name", f"{name!r} is no name of a plot",
                          "use a file name that ends in .png", "plots")


@contextmanager
def _writing(folder: Path) -> Iterator[Path]:
    """Yield a hidden folder beside ``folder`` that becomes it when all went well."""
    partial: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        partial.chmod(folder.parent.stat().st_mode & 0o777)
        yield partial
        partial.rename(folder)
    except OSError as error:
        raise _unwritable(folder, error) from None
    finally:
        if partial is not None:
            shutil.rmtree(partial, ignore_errors=True)


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST_RUN_FILE_BYTES:
            raise ValueError(f"it is larger than {LARGEST_RUN_FILE_BYTES} bytes")
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError.of("run-file", f"cannot read {path}: {reason}",
                            "name a run folder that `predict-time train` wrote", "run") from None


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError.of("writable-run", f"cannot write {path}: {error.strerror or error}",
                         "choose another folder for the runs", "run")


def _refuse(problems: Iterator[Problem] | Sequence[Problem]) -> None:
    found = list(problems)
    if found:
        raise InputError(found)

