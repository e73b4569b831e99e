"""What a manifest holds and which arrays a model's file has: shared by writer and reader."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np

from predictor.bundle.digest import canonical_json, manifest_digest
from predictor.spec.errors import InputError, Problem

FORMAT_VERSION: Final = 1
MANIFEST: Final = "manifest.json"
RETRAIN: Final = "retrain with: predict-time train all --data DIR"
LARGEST_FILE_BYTES: Final = 64_000_000
LARGEST_MANIFEST_BYTES: Final = 1_000_000
LARGEST_UNPACKED_BYTES: Final = {"npz": 64_000_000, "ubj.xz": 256_000_000}
"""Of all files of a kind together. A node takes 7 bytes of arrays, up to 80 while it is opened,
and 35 in a booster."""
MOST_MODELS: Final = 16
MOST_FEATURES: Final = 1_000
LONGEST_TEXT: Final = 2_000
LONGEST_SHOWN: Final = 60

ARRAYS: Final = {"root": 1, "feature": 1, "number": 1, "missing_left": 1, "base": 0, "low": 1,
                 "high": 1, "centre": 1, "levels": 1, "widths": 3, "devices": 2}
"""Dimensions of the arrays in a model's file, by name."""
TREE_ARRAYS: Final = ("root", "feature", "number", "missing_left")
"""Those of :class:`~predictor.bundle.packing.PackedForest`."""
ARRAY_DTYPES: Final[dict[str, np.dtype[Any]]] = {name: np.dtype(np.float64) for name in ARRAYS} | {
    "root": np.dtype(np.int32), "feature": np.dtype(np.int16), "number": np.dtype(np.float32),
    "missing_left": np.dtype(np.bool_), "devices": np.dtype(np.float32)}

Param = str | int | float | bool | list[Any] | None
_MODEL_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_BUNDLE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class TrainingSource:
    """A table that was learned from."""

    name: str
    source: str
    """Where it came from: a repository, a paper, a dataset."""
    licence: str
    rows: int
    sha256: str
    """Of the file that was read."""


@dataclass(frozen=True, slots=True)
class TrainingManifest:
    """What a training says about the bundle it writes."""

    name: str
    """Such as predict-time-kernels."""
    created: str
    """ISO 8601 time with its zone. Given, not looked up: equal trainings give equal bytes."""
    sources: tuple[TrainingSource, ...]


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """What the manifest says about one model."""

    name: str
    features: tuple[str, ...]
    units: tuple[str, ...]
    """Of each feature, 1 for shares, counts and flags."""
    groups: tuple[str, ...]
    device_columns: tuple[str, ...]
    """The features that tell GPUs apart; none where a family does not depend on the GPU."""
    params: Mapping[str, Param]
    """Settings of the training."""
    n_rows: int
    """Rows learned from."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A checked manifest.json."""

    format_version: int
    name: str
    created: str
    predict_time_version: str
    digest: str
    """Of the manifest without this field; it names all other files' digests."""
    files: Mapping[str, str]
    """SHA-256 by file name."""
    unpacked_bytes: Mapping[str, int]
    """Size of each file's content when it is decompressed: no reader makes more of it."""
    models: tuple[ModelEntry, ...]
    sources: tuple[TrainingSource, ...]
    versions: Mapping[str, str]
    """Of python, numpy and xgboost in the training."""


def files_of(models: list[str]) -> set[str]:
    """Return the names of the files that models of these names consist of."""
    return {f"{name}.{suffix}" for name in models for suffix in LARGEST_UNPACKED_BYTES}


def quoted(text: object) -> str:
    """Return text from a file fit for a message: one line, cut when long."""
    shown = repr(str(text))
    return shown if len(shown) <= LONGEST_SHOWN else shown[:LONGEST_SHOWN] + "..."


def refusal(rule: str, message: str, where: str = "") -> InputError:
    """Return an error about a bundle's file; what helps is always the same."""
    return InputError.of(f"bundle-{rule}", message, RETRAIN, where)


def parse_manifest(content: bytes) -> Manifest:
    """Return the manifest that a file's ``content`` holds.

    Raises
    ------
    InputError
        When it is not the JSON that :func:`~predictor.bundle.write.write_bundle` writes, byte for
        byte, is of another format version, disagrees with its own digest, or holds unknown,
        missing or wrong fields (all of these at once).
    """
    try:
        fields: Any = json.loads(content)
        same = isinstance(fields, dict) and canonical_json(fields) == content
    except (ValueError, RecursionError) as error:
        raise refusal("manifest", f"it is not JSON: {quoted(error)}", MANIFEST) from None
    if not isinstance(fields, dict):
        raise refusal("manifest", "it does not hold a mapping", MANIFEST)
    version = fields.get("format_version")
    if type(version) is not int or version != FORMAT_VERSION:
        raise refusal("version", f"the bundle has format version {quoted(version)}, this "
                      f"predict-time reads {FORMAT_VERSION}", MANIFEST)
    if not same or fields.get("digest") != manifest_digest(fields):
        raise refusal("digest", "the manifest was changed after it was written", MANIFEST)
    problems = _problems(fields, _MANIFEST, "")
    problems = problems or _disagreements(fields)
    if problems:
        raise InputError(Problem("bundle-manifest", message, RETRAIN, MANIFEST)
                         for message in problems)
    return Manifest(**{**fields, "models": tuple(map(_model_entry, fields["models"])),
                       "sources": tuple(TrainingSource(**source) for source in fields["sources"])})


def _model_entry(fields: dict[str, Any]) -> ModelEntry:
    lists = {name: tuple(fields[name]) for name in ("features", "units", "groups",
                                                   "device_columns")}
    return ModelEntry(**{**fields, **lists})


def _disagreements(fields: Mapping[str, Any]) -> list[str]:
    """Name what is wrong between fields that are each sound."""
    names = [entry["name"] for entry in fields["models"]]
    found = [f"models.{entry['name']}: {len(entry['features'])} features have "
             f"{len(entry['units'])} units" for entry in fields["models"]
             if len(entry["features"]) != len(entry["units"])]
    if len(set(names)) < len(names):
        found.append("a model comes twice")
    expected, files = files_of(names), set(fields["files"])
    found += [f"files lacks {name}" for name in sorted(expected - files)]
    found += [f"files names {quoted(name)}, of no model" for name in sorted(files - expected)]
    sizes = fields["unpacked_bytes"]
    if set(sizes) != files:
        found.append("unpacked_bytes does not name the same files as files")
    for suffix, most in LARGEST_UNPACKED_BYTES.items():
        total = sum(size for name, size in sizes.items() if name.endswith(f".{suffix}"))
        if total > most:
            found.append(f"unpacked_bytes of *.{suffix} are {total} together, more than {most}")
    return found


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST_TEXT and value.isprintable()


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**53


def _matches(pattern: re.Pattern[str]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_time(value: object) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_text, value)) and \
        len(set(value)) == len(value)


def _is_features(value: object) -> bool:
    return _is_texts(value) and isinstance(value, list) and len(value) <= MOST_FEATURES


def _is_columns(value: object) -> bool:
    return value == [] or _is_features(value)


def _is_units(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _is_params(value: object) -> bool:
    return isinstance(value, dict) and all(
        _is_plain(entry) or (isinstance(entry, list) and all(map(_is_plain, entry)))
        for entry in value.values())


def _is_versions(value: object) -> bool:
    return isinstance(value, dict) and set(value) == {"python", "numpy", "xgboost"} and \
        all(map(_is_text, value.values()))


def _is_digests(value: object) -> bool:
    return isinstance(value, dict) and all(map(_matches(_SHA256), value.values()))


def _is_sizes(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_count, value.values()))


_Schema = Mapping[str, tuple[str, Callable[[object], bool]]]
_MODEL: _Schema = {
    "name": ("lower-case letters, digits and underscores", _matches(_MODEL_NAME)),
    "features": (f"a list of at most {MOST_FEATURES} different names", _is_features),
    "units": ("a list of units", _is_units),
    "groups": ("a list of different names", _is_texts),
    "device_columns": ("a list of different names", _is_columns),
    "params": ("a mapping to plain values", _is_params),
    "n_rows": ("a count", _is_count),
}
_SOURCE: _Schema = {
    "name": ("text", _is_text), "source": ("text", _is_text), "licence": ("text", _is_text),
    "rows": ("a count", _is_count), "sha256": ("64 hexadecimal digits", _matches(_SHA256)),
}
_MANIFEST: _Schema = {
    "format_version": ("a count", _is_count),
    "name": ("letters, digits, dots and dashes", _matches(_BUNDLE_NAME)),
    "created": ("a time with its zone", _is_time),
    "predict_time_version": ("text", _is_text),
    "digest": ("64 hexadecimal digits", _matches(_SHA256)),
    "files": ("a mapping to SHA-256 digests", _is_digests),
    "unpacked_bytes": ("a mapping to counts", _is_sizes),
    "models": (f"a list of 1 to {MOST_MODELS} models",
               lambda value: isinstance(value, list) and 1 <= len(value) <= MOST_MODELS),
    "sources": ("a list of at least one source",
                lambda value: isinstance(value, list) and bool(value)),
    "versions": ("the versions of python, numpy and xgboost", _is_versions),
}
_PARTS = {"models": _MODEL, "sources": _SOURCE}


def _problems(fields: object, schema: _Schema, where: str) -> list[str]:
    """Name unknown, missing and wrong fields of a mapping, and of the mappings in its lists."""
    if not isinstance(fields, dict):
        return [f"{where.rstrip('.')} is not a mapping"]
    found = [f"unknown field {where}{quoted(name)}" for name in sorted(set(fields) - set(schema))]
    found += [f"{where}{name} is missing" for name in schema if name not in fields]
    found += [f"{where}{name} is not {what}" for name, (what, right) in schema.items()
              if name in fields and not right(fields[name])]
    for name, part in _PARTS.items():
        if schema is _MANIFEST and isinstance(fields.get(name), list):
            for position, entry in enumerate(fields[name]):
                found += _problems(entry, part, f"{where}{name}[{position}].")
    return found
