"""Opens a bundle: nothing in it is trusted and nothing in it is executed.

Sizes come first, then digests, then plain parsers of our own: no pickle, no more unpacked than the
manifest states, no XGBoost (which sees a booster only in the first prediction of many rows).
Digests show damage, not intent: who writes a bundle writes its digests too, so what is parsed is
checked as well.
"""

from __future__ import annotations

import io
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from predictor.bundle.digest import sha256_of
from predictor.bundle.format import (
    ARRAY_DTYPES,
    ARRAYS,
    LARGEST_FILE_BYTES,
    LARGEST_MANIFEST_BYTES,
    MANIFEST,
    MOST_MODELS,
    RETRAIN,
    TREE_ARRAYS,
    Manifest,
    ModelEntry,
    parse_manifest,
    quoted,
    refusal,
)
from predictor.bundle.packing import PackedForest, unpacked
from predictor.bundle.trees import BoostedTrees
from predictor.spec.errors import InputError, Problem
from predictor.timing.residual import ResidualModel

MOST_ENTRIES: Final = 2 * MOST_MODELS + 1
Arrays = dict[str, NDArray[Any]]
_DESCRIPTIONS = {name: np.lib.format.dtype_to_descr(dtype.newbyteorder("<"))
                 for name, dtype in ARRAY_DTYPES.items()}
# Version 1.0 of the .npy format, exactly as NumPy writes it; NumPy's own reader would evaluate the
# header as Python and allocate whatever shape it declares.
_NPY = re.compile(rb"\x93NUMPY\x01\x00(?s:..)\{'descr': '([<>|][a-z]\d)', 'fortran_order': False, "
                  rb"'shape': \(((?:\d{1,9}, )*\d{1,9},?)?\), \} *\n")
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, ValueError,
               OverflowError, EOFError, LookupError, OSError)
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@dataclass(frozen=True, slots=True, eq=False)
class Bundle:
    """A learned predictor."""

    digest: str
    """Identifies the contents of all files."""
    manifest: Manifest
    models: Mapping[str, ResidualModel]
    """By name of the family of kernels."""


def open_bundle(folder: Path | str) -> Bundle:
    """Return the bundle in ``folder``.

    Raises
    ------
    InputError
        When the folder or a file is missing, unreadable, a link, too large, not named by the
        manifest or not what its digest says; when the manifest or an array is not of this format;
        or when an array holds what a prediction must not use. Rules start with ``bundle-``.
    """
    folder = Path(folder)
    found = _names(folder)
    manifest = parse_manifest(_content(folder / MANIFEST, LARGEST_MANIFEST_BYTES))
    _check_names(found - {MANIFEST}, set(manifest.files))
    contents = {name: _content(folder / name, LARGEST_FILE_BYTES) for name in manifest.files}
    changed = [name for name, digest in manifest.files.items()
               if sha256_of(contents[name]) != digest]
    if changed:
        raise InputError(Problem("bundle-digest", "the file was changed after it was written",
                                 RETRAIN, name) for name in changed)
    models = {entry.name: _model(entry, contents, manifest.unpacked_bytes)
              for entry in manifest.models}
    return Bundle(digest=manifest.digest, manifest=manifest, models=models)


def _names(folder: Path) -> set[str]:
    """Return the names in the folder, without going through a folder of millions."""
    names: set[str] = set()
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                names.add(entry.name)
                if len(names) > MOST_ENTRIES:
                    raise refusal("files", f"the folder {quoted(folder)} holds more than "
                                  f"{MOST_ENTRIES} entries")
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise refusal("folder", f"cannot read the folder {quoted(folder)}: {reason}") from None
    if MANIFEST not in names:
        raise refusal("files", f"the folder {quoted(folder)} holds no {MANIFEST}")
    return names


def _check_names(found: set[str], named: set[str]) -> None:
    problems = [(name, "the file is missing") for name in sorted(named - found)]
    problems += [(quoted(name), "the manifest does not name it") for name in sorted(found - named)]
    if problems:
        raise InputError(Problem("bundle-files", message, RETRAIN, where)
                         for where, message in problems)


def _content(path: Path, most: int) -> bytes:
    """Return a regular file's bytes; links and devices are refused, not followed."""
    # Without O_NONBLOCK, a pipe that took the file's place would wait for a writer for ever.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) \
        | getattr(os, "O_BINARY", 0)
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise refusal("files", "it is not a regular file", path.name)
        with os.fdopen(os.open(path, flags), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            content = file.read(size + 1) if size <= most else b""  # allocated before it is read
    except OSError as error:
        raise refusal("files", f"cannot read it: {error.strerror}", path.name) from None
    if size > most or len(content) > most:
        raise refusal("size", f"it is larger than {most} bytes", path.name)
    return content


def _model(entry: ModelEntry, contents: Mapping[str, bytes],
           unpacked_bytes: Mapping[str, int]) -> ResidualModel:
    where, booster = f"{entry.name}.npz", f"{entry.name}.ubj.xz"
    try:
        arrays = _arrays(contents[where], unpacked_bytes[where], where)
        trees = PackedForest(**{name: arrays[name] for name in TREE_ARRAYS})
        forest = unpacked(trees, float(arrays["base"]))
        if forest.width > len(entry.features):
            raise refusal("arrays", f"trees look at feature {forest.width - 1} of "
                          f"{len(entry.features)}", where)
        return ResidualModel(
            name=entry.name, features=entry.features, groups=entry.groups,
            device_columns=entry.device_columns,
            regressor=BoostedTrees(forest, len(entry.features), contents[booster],
                                   unpacked_bytes[booster]),
            **{name: arrays[name] for name in ("low", "high", "centre", "levels", "widths",
                                               "devices")})
    except InputError as error:
        raise InputError(Problem("bundle-arrays", problem.message, RETRAIN, where)
                         for problem in error.problems) from None


def _arrays(content: bytes, size: int, where: str) -> Arrays:
    """Return the arrays of a model's file: exactly those of the format, of ``size`` bytes."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            names = [member.filename.removesuffix(".npy") for member in members]
            if sorted(names) != sorted(ARRAYS):
                raise refusal("arrays", f"it holds {quoted(sorted(names))}, not the arrays of a "
                              "model", where)
            # Declared sizes are looked at before anything is read.
            if any(member.compress_type not in _COMPRESSIONS for member in members):
                raise refusal("arrays", "its members are neither stored nor deflated", where)
            declared = sum(member.file_size for member in members)
            if declared != size:
                raise refusal("arrays", f"it declares {declared} bytes of arrays, the manifest "
                              f"{size}", where)
            return {name: _array(name, _member(archive, member), where)
                    for name, member in zip(names, members, strict=True)}
    except _ZIP_ERRORS as error:
        if isinstance(error, InputError):
            raise
        raise refusal("arrays", f"it is no archive of arrays: {quoted(error)}", where) from None


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Return a member's bytes: never more than it declares, and less only as zipfile's error."""
    with archive.open(member) as file:
        return file.read(member.file_size)  # without a number, it inflates before it looks


def _array(name: str, content: bytes, where: str) -> NDArray[Any]:
    """Return the array of a .npy member, of exactly the type that ``name`` has in this format."""
    header = _NPY.match(content)
    if header is None or header[1].decode() != _DESCRIPTIONS[name]:
        raise refusal("arrays", f"{name} is not an array of {ARRAY_DTYPES[name]}", where)
    shape = tuple(int(length) for length in (header[2] or b"").replace(b",", b" ").split())
    dtype = np.dtype(_DESCRIPTIONS[name])
    count = 1
    for length in shape:
        count *= length  # Python's integers: no overflow
    if len(shape) != ARRAYS[name] or count * dtype.itemsize != len(content) - header.end():
        raise refusal("arrays", f"{name} of shape {shape} has {len(content) - header.end()} bytes",
                      where)
    if dtype == np.bool_ and content[header.end():].translate(None, b"\x00\x01"):
        raise refusal("arrays", f"{name} holds bytes that are neither true nor false", where)
    array = np.frombuffer(content, dtype=dtype, offset=header.end()).reshape(shape)
    return array.astype(ARRAY_DTYPES[name])  # a copy: aligned and in this machine's byte order
