"""The catalogue's files: where they lie and what they hold, each read once and only when needed."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from predictor.spec.errors import InputError

Entry = dict[str, Any]

_PACKAGE = Path(__file__).parent.parent
NOTES = ("summary", "aliases")
"""Keys of an entry that describe it and are not fields of its record."""


def data_folder() -> Path:
    """Return the folder of the data files: inside an installed package, or beside a checkout's."""
    inside = _PACKAGE / "_data"
    return inside if inside.is_dir() else _PACKAGE.parent / "data"


def model_folder() -> Path:
    """Return where the learned predictor that comes with the package lies, if it has one."""
    return data_folder() / "model"


@cache
def entries(kind: str) -> dict[str, Entry]:
    """Return the entries of ``kind`` (``gpus``, ``clusters`` or ``models``) by name.

    The same dictionaries are returned each time: callers copy what they change.
    """
    text = (data_folder() / "catalog" / f"{kind}.json").read_text(encoding="utf-8")
    found: dict[str, Entry] = json.loads(text)
    return found


def default_predictor() -> Path:
    """Return the folder of the learned predictor that comes with the package.

    Raises
    ------
    InputError
        When this installation has none.
    """
    folder = model_folder()
    if not folder.is_dir():
        raise InputError.of("installed-predictor", f"there is no learned predictor in {folder}",
                            "make one with predict-time train all --data DIR --bundle "
                            f"{folder}, or use --analytic", "predictor")
    return folder
