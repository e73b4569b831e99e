"""Writes a bundle: all of it or nothing, and equal bytes for equal trainings."""

from __future__ import annotations

import io
import platform
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from predictor.bundle.digest import canonical_json, manifest_digest, sha256_of
from predictor.bundle.format import (
    ARRAY_DTYPES,
    FORMAT_VERSION,
    MANIFEST,
    TREE_ARRAYS,
    Param,
    TrainingManifest,
    quoted,
)
from predictor.bundle.packing import compressed, packed
from predictor.bundle.read import Bundle, open_bundle
from predictor.bundle.trees import ROWS_BY_FOREST, forest_of, slim
from predictor.lowering.tables import Floats
from predictor.spec.errors import InputError
from predictor.timing.residual import Singles, no_devices
from predictor.version import __version__

if TYPE_CHECKING:
    from xgboost import Booster

    from predictor.timing.forest import Forest

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip archive can state."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainedModel:
    """A booster with what :class:`~predictor.timing.residual.ResidualModel` needs beside it."""

    name: str
    features: tuple[str, ...]
    units: tuple[str, ...]
    """Of each feature, 1 for shares, counts and flags."""
    booster: Booster
    """Predicts log ratios from ``features`` in this order."""
    low: Floats
    """Smallest training value of each feature, shape (features,)."""
    high: Floats
    """Largest training value of each feature, shape (features,)."""
    groups: tuple[str, ...]
    centre: Floats
    """Median log ratio of each group, shape (groups,)."""
    levels: Floats
    """Shares of errors that widths cover, rising, shape (levels,)."""
    widths: Floats
    """Absolute log errors, shape (groups, 2, levels): inside and outside the domain; NaN where
    not calibrated."""
    params: Mapping[str, Param]
    """Settings of the training, plain values."""
    n_rows: int
    device_columns: tuple[str, ...] = ()
    """The features that tell GPUs apart."""
    devices: Singles = field(default_factory=no_devices)
    """Distinct values of ``device_columns`` in training, float32, shape (devices, columns)."""


def write_bundle(folder: Path | str, models: Sequence[TrainedModel],
                 manifest: TrainingManifest) -> Bundle:
    """Write a bundle to ``folder`` and return it as it opens.

    Leaves are rounded to multiples of :data:`~predictor.bundle.packing.LEAF_STEP`, in arrays and
    booster alike. The files are written beside the folder, opened and checked there, and renamed;
    an older bundle in ``folder`` is replaced. After a failure ``folder`` is as before.

    Raises
    ------
    InputError
        When a model, a booster or the manifest breaks a rule of the format, when ``folder`` holds
        something else than a bundle, or when it cannot be written.
    """
    return _written(Path(folder), _files(models, manifest), _check_boosters)


def copy_bundle(bundle: Path | str, folder: Path | str) -> Bundle:
    """Copy the bundle in the folder ``bundle`` to ``folder`` and return the copy as it opens.

    An older bundle in ``folder`` is replaced. After a failure ``folder`` is as before.

    Raises
    ------
    InputError
        When ``bundle`` is no sound bundle, changes meanwhile, when ``folder`` holds something else
        than a bundle, or when it cannot be written.
    """
    source = Path(bundle)
    names = (MANIFEST, *open_bundle(source).manifest.files)
    try:
        files = {name: (source / name).read_bytes() for name in names}
    except OSError as error:
        raise InputError.of("bundle-files", f"cannot read {quoted(source)}: {error.strerror}",
                            "copy it when nobody writes it") from None
    return _written(Path(folder), files, lambda opened: None)


def _written(folder: Path, files: Mapping[str, bytes],
             check: Callable[[Bundle], None]) -> Bundle:
    """Put files in the place of ``folder`` once they open and ``check`` has no objection."""
    _check_target(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as beside:
            fresh = Path(beside) / "new"
            fresh.mkdir()
            for name, content in files.items():
                (fresh / name).write_bytes(content)
            bundle = open_bundle(fresh)
            check(bundle)
            _replace(folder, fresh, Path(beside) / "old")
    except OSError as error:
        raise InputError.of("bundle-write", f"cannot write {quoted(folder)}: "
                            f"{error.strerror or error}", "give a folder that can be written"
                            ) from None
    return bundle


def _check_boosters(bundle: Bundle) -> None:
    """Have XGBoost load what was written and say the same as the flat trees, over the domain."""
    for model in bundle.models.values():
        # Beyond the domain too: thresholds lie between training values.
        share = np.random.default_rng(0).uniform(-0.1, 1.1, (ROWS_BY_FOREST + 1, len(model.low)))
        rows = model.low + share * (model.high - model.low)
        model.regressor.predict(rows.astype(np.float32))


def _check_target(folder: Path) -> None:
    """Refuse to replace what is no bundle."""
    if not folder.exists() and not folder.is_symlink():
        return
    if folder.is_dir() and not folder.is_symlink() and (
            (folder / MANIFEST).is_file() or not any(folder.iterdir())):
        return
    raise InputError.of("bundle-write", f"{quoted(folder)} exists and is no bundle",
                        "give a new folder")


def _replace(folder: Path, fresh: Path, old: Path) -> None:
    """Put ``fresh`` in the place of ``folder``, and what was there back when that fails."""
    replaced = folder.exists()
    if replaced:
        folder.rename(old)
    try:
        fresh.rename(folder)
    except OSError:
        if replaced:
            old.rename(folder)
        raise
    if replaced:
        shutil.rmtree(old, ignore_errors=True)


def _files(models: Sequence[TrainedModel], manifest: TrainingManifest) -> dict[str, bytes]:
    """Return the content of every file by name."""
    import xgboost

    files: dict[str, bytes] = {}
    sizes: dict[str, int] = {}
    for model in models:
        booster = slim(model.booster)
        members = _members(model, forest_of(booster))
        ubj = bytes(booster.save_raw("ubj"))
        arrays_file, booster_file = f"{model.name}.npz", f"{model.name}.ubj.xz"
        files |= {arrays_file: _npz(members), booster_file: compressed(ubj)}
        sizes |= {arrays_file: sum(map(len, members.values())), booster_file: len(ubj)}
    fields = {
        "format_version": FORMAT_VERSION, "predict_time_version": __version__,
        **asdict(manifest), "models": [_entry(model) for model in models],
        "files": {name: sha256_of(content) for name, content in files.items()},
        "unpacked_bytes": sizes,
        "versions": {"python": platform.python_version(), "numpy": np.__version__,
                     "xgboost": xgboost.__version__},
    }
    try:
        content = canonical_json(fields | {"digest": manifest_digest(fields)})
    except (TypeError, ValueError) as error:
        raise InputError.of("bundle-manifest", f"the manifest cannot be written as JSON: {error}",
                            "give plain, finite values") from None
    return files | {MANIFEST: content}


def _entry(model: TrainedModel) -> dict[str, Any]:
    return {"name": model.name, "features": list(model.features), "units": list(model.units),
            "groups": list(model.groups), "device_columns": list(model.device_columns),
            "params": dict(model.params), "n_rows": model.n_rows}


def _members(model: TrainedModel, forest: Forest) -> dict[str, bytes]:
    """Return a model's arrays as .npy files by name."""
    trees = packed(forest)
    arrays: dict[str, Any] = {name: getattr(trees, name) for name in TREE_ARRAYS}
    arrays["base"] = forest.base
    arrays |= {name: getattr(model, name) for name in ("low", "high", "centre", "levels",
                                                       "widths", "devices")}
    return {f"{name}.npy": _npy(np.asarray(arrays[name], dtype.newbyteorder("<")))
            for name, dtype in ARRAY_DTYPES.items()}


def _npz(members: Mapping[str, bytes]) -> bytes:
    """Return a deflated archive of ``members`` without times or a system's name."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            member = zipfile.ZipInfo(name, _EPOCH)
            member.create_system, member.external_attr = 3, 0o644 << 16
            archive.writestr(member, content, zipfile.ZIP_DEFLATED, compresslevel=9)
    return buffer.getvalue()


def _npy(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(array, order="C"), version=(1, 0),
                              allow_pickle=False)
    return buffer.getvalue()
