"""The model registry: which version of the learned predictor is the one to use.

Versions are registered from logged runs. The alias ``champion`` names the version in use and moves
only in :func:`promote`, which refuses a version that predicts any group of rows worse, and in
:func:`rollback`, which puts back what ``previous`` names.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from predictor.spec.errors import InputError, Problem
from predictor.training.record import RunRecord, read_run
from predictor.training.tracking import (
    BUNDLE_PATH, DIGEST_TAG, LOG_LATER, RUN_TAG, cache_folder, connection, model_of,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

KERNELS, COLLECTIVES = "predict-time-kernels", "predict-time-collectives"
NAMES = (KERNELS, COLLECTIVES)
CHAMPION, PREVIOUS = "champion", "previous"
MAPE = "mape/"
SLACK = 0.5
"""Points of MAPE by which a new champion may be worse in a group: noise of a retraining."""
MANIFEST = "manifest.json"
_ADDRESS = re.compile(r"models:/(?P<name>[A-Za-z0-9._-]+)"
                      r"(?:@(?P<alias>[A-Za-z0-9._-]+)|/(?P<version>[1-9][0-9]{0,8}))")
_MODEL_SOURCE = re.compile(r"models:/(?P<model>m-[A-Za-z0-9]+)")
_ABSENT = ("RESOURCE_DOES_NOT_EXIST", "NOT_FOUND", "INVALID_PARAMETER_VALUE")
"""Codes of a missing version or alias, by MLflow's version and kind of store."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a registered model."""

    name: str
    version: int
    aliases: tuple[str, ...]
    created: str
    """ISO 8601, UTC."""
    run_id: str
    """The id of the run folder."""
    digest: str
    mape: Mapping[str, float]
    """``family/group`` -> mean absolute percentage error, percent."""


@dataclass(frozen=True, slots=True)
class Scoreboard:
    """By how many points of MAPE a new champion may be worse."""

    slack: float = SLACK
    by_group: Mapping[str, float] = field(default_factory=dict)
    """``family/group`` -> slack of that group."""

    def slack_of(self, group: str) -> float:
        """Return the points that ``group`` may lose."""
        return self.by_group.get(group, self.slack)


@dataclass(frozen=True, slots=True)
class Champion:
    """Which version the alias ``champion`` names now, and which one it named before."""

    name: str
    version: int
    before: int | None


def register(record: RunRecord, name: str, tracking_uri: str | None = None) -> int:
    """Register the bundle of a logged run under ``name``; return its version.

    A bundle that is registered already keeps its version.

    Raises
    ------
    InputError
        When the name is not one of :data:`NAMES`, the run is not logged, or the store fails.
    """
    _check_name(name)
    known = read_run(record.folder)
    if known.logged is None:
        raise InputError.of("run-logged", f"run {known.run_id} is not logged",
                            f"log it with: {LOG_LATER} {known.folder.parent}", "run")
    with connection(tracking_uri) as client:
        model = model_of(client, known.logged)
        if model is None:
            raise InputError.of("logged-model", f"run {known.run_id} logged no bundle here",
                                "name the store that the run was logged to", "run")
        _make_model(client, name)
        source = f"models:/{model}"
        for found in _versions(client, name):
            if found.source == source:
                return int(found.version)
        made = client.create_model_version(
            name, source, run_id=known.logged, model_id=model,
            tags={DIGEST_TAG: known.digest, RUN_TAG: known.run_id})
        return int(made.version)


def list_versions(tracking_uri: str | None = None) -> list[Version]:
    """Return every version of our models, newest first within each name.

    Raises
    ------
    InputError
        When MLflow is not installed or the store fails.
    """
    with connection(tracking_uri) as client:
        return [_version(client, found) for name in NAMES for found in _versions(client, name)]


def promote(
    name: str, version: int, *, scoreboard: Scoreboard | None = None,
    tracking_uri: str | None = None,
) -> Champion:
    """Make a version the champion unless it predicts a group worse than the champion does.

    Parameters
    ----------
    name, version
        Which version.
    scoreboard
        How much worse is still as good.
    tracking_uri
        Address of the store.

    Returns
    -------
    Champion
        The new champion; the old one is kept under the alias ``previous``.

    Raises
    ------
    InputError
        With one problem for each group that is worse or is no longer scored; when the version has
        no scores or does not exist; when the store fails. No alias has moved then.
    """
    _check_name(name)
    with connection(tracking_uri) as client:
        wanted = _mape(client, _found(client, name, version))
        if not wanted:
            raise InputError.of("recorded-scores", f"{name} version {version} has no scores",
                                "log its run with the scores of held-out rows", "version")
        champion = _aliased(client, name, CHAMPION)
        if champion is None:
            client.set_registered_model_alias(name, CHAMPION, str(version))
            return Champion(name, version, None)
        before = int(champion.version)
        if before == version:
            return Champion(name, version, _number(_aliased(client, name, PREVIOUS)))
        problems = list(_worse(wanted, _mape(client, champion), scoreboard or Scoreboard(), before))
        if problems:
            raise InputError(problems)
        # In this order, so that an interruption between the two loses no champion.
        client.set_registered_model_alias(name, PREVIOUS, str(before))
        client.set_registered_model_alias(name, CHAMPION, str(version))
        return Champion(name, version, before)


def rollback(name: str, tracking_uri: str | None = None) -> Champion:
    """Make the previous champion the champion again; ``previous`` is then free.

    Raises
    ------
    InputError
        When there is no previous champion or the store fails.
    """
    _check_name(name)
    with connection(tracking_uri) as client:
        champion = _number(_aliased(client, name, CHAMPION))
        previous = _number(_aliased(client, name, PREVIOUS))
        if previous is None or previous == champion:
            raise InputError.of("previous-champion", f"{name} has no previous champion",
                                "promote a version: predict-time models promote", "name")
        client.set_registered_model_alias(name, CHAMPION, str(previous))
        client.delete_registered_model_alias(name, PREVIOUS)
        return Champion(name, previous, champion)


def fetch(address: str, tracking_uri: str | None = None) -> Path:
    """Download a registered bundle and return its folder; nothing in it is executed or parsed.

    Only the files of the bundle are taken, not MLflow's code file or its lists of packages. They
    are kept in the cache, once per logged model, which never changes.

    Parameters
    ----------
    address
        ``models:/NAME@champion`` or ``models:/NAME/3``.
    tracking_uri
        Address of the store.

    Raises
    ------
    InputError
        When the address is wrong or names nothing, no bundle is there, or the store fails.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise InputError.of("model-address", f"{address!r} is no address of a model",
                            f"write models:/{KERNELS}@{CHAMPION} or models:/{KERNELS}/1")
    _check_name(match["name"])
    with connection(tracking_uri) as client:
        found = (_found(client, match["name"], int(match["version"])) if match["version"]
                 else _aliased(client, match["name"], match["alias"]))
        if found is None:
            raise InputError.of("model-alias", f"{match['name']} has no {match['alias']}",
                                "see: predict-time models list")
        source = _MODEL_SOURCE.fullmatch(str(found.source))
        if source is None:
            raise _no_bundle(address)
        kept = cache_folder() / "registry" / source["model"]
        if not (kept / MANIFEST).is_file():
            location = client.get_logged_model(source["model"]).artifact_location
            _download(f"{location}/{BUNDLE_PATH}", kept, address, client.tracking_uri)
        return kept


def _download(location: str, target: Path, address: str, tracking_uri: str) -> None:
    """Download a folder into ``target``, all of it or nothing."""
    from mlflow.artifacts import download_artifacts

    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        bundle = Path(download_artifacts(artifact_uri=location, dst_path=str(partial),
                                         tracking_uri=tracking_uri))
        if not (bundle / MANIFEST).is_file():
            raise _no_bundle(address)
        shutil.rmtree(target, ignore_errors=True)
        bundle.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _no_bundle(address: str) -> InputError:
    return InputError.of("model-bundle", f"{address} holds no bundle of predict-time",
                         "register the version with predict-time")


def _check_name(name: str) -> None:
    if name not in NAMES:
        raise InputError.of("model-name", f"there is no model {name!r}",
                            f"choose one of {', '.join(NAMES)}", "name")


def _make_model(client: MlflowClient, name: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _versions(client: MlflowClient, name: str) -> list[ModelVersion]:
    """Return the versions of a model, newest first; their aliases are not filled in."""
    versions: list[ModelVersion] = []
    token: str | None = None
    while True:
        page = client.search_model_versions(f"name = '{name}'", page_token=token)
        versions += page
        token = page.token
        if not token:
            return sorted(versions, key=lambda one: -int(one.version))


def _found(client: MlflowClient, name: str, version: int) -> ModelVersion:
    from mlflow.exceptions import MlflowException

    try:
        return client.get_model_version(name, str(version))
    except MlflowException as error:
        if error.error_code not in _ABSENT:
            raise
        raise InputError.of("model-version", f"{name} has no version {version}",
                            "see: predict-time models list", "version") from None


def _aliased(client: MlflowClient, name: str, alias: str) -> ModelVersion | None:
    from mlflow.exceptions import MlflowException

    try:
        return client.get_model_version_by_alias(name, alias)
    except MlflowException as error:
        if error.error_code not in _ABSENT:
            raise
        return None


def _number(found: ModelVersion | None) -> int | None:
    return None if found is None else int(found.version)


def _version(client: MlflowClient, listed: ModelVersion) -> Version:
    found = client.get_model_version(listed.name, listed.version)  # with its aliases
    created = datetime.fromtimestamp(found.creation_timestamp / 1000, UTC)
    return Version(
        name=found.name, version=int(found.version), aliases=tuple(sorted(found.aliases)),
        created=created.isoformat(timespec="seconds"), run_id=found.tags.get(RUN_TAG, ""),
        digest=found.tags.get(DIGEST_TAG, ""), mape=_mape(client, found))


def _mape(client: MlflowClient, found: ModelVersion) -> dict[str, float]:
    """Return the MAPE of each ``family/group`` that the version's run recorded, percent."""
    if not found.run_id:
        return {}
    metrics = client.get_run(found.run_id).data.metrics
    return {name.removeprefix(MAPE): value for name, value in sorted(metrics.items())
            if name.startswith(MAPE)}


def _worse(
    wanted: Mapping[str, float], champion: Mapping[str, float], scoreboard: Scoreboard, before: int,
) -> Iterator[Problem]:
    for group, best in champion.items():
        slack, value = scoreboard.slack_of(group), wanted.get(group)
        if value is None:
            yield Problem("champion-scored", f"it has no MAPE there, champion {before} has "
                          f"{best:.2f} %", "score it on the same groups", group)
        elif not value <= best + slack:
            yield Problem("champion-worse", f"its MAPE of {value:.2f} % is worse than the "
                          f"{best:.2f} % of champion {before} by more than {slack:g} points",
                          "train a better one", group)
