"""Finds an entry by its name, an alias, or either of them in another spelling."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from functools import cache, lru_cache

from predictor.catalog.data import Entry, entries
from predictor.spec.errors import InputError

SINGULAR = {"gpus": "GPU", "clusters": "cluster", "models": "model"}
LONGEST_NAME = 200
_VENDORS = re.compile(r"^(nvidia|amd|instinct|tesla|geforce)+")


@lru_cache(maxsize=4096)
def spelling(name: str) -> str:
    """Return ``name`` without case, vendor, separators and remarks in parentheses.

    Dots stay: they tell 1.3b from 13b.
    """
    plain = re.sub(r"\(.*?\)", "", name).lower()
    return _VENDORS.sub("", re.sub(r"[^a-z0-9.]", "", plain))


@cache
def _index(kind: str) -> dict[str, str]:
    """Return name by spelling; names come before aliases."""
    known = entries(kind)
    index = {spelling(alias): name for name, entry in known.items() for alias in entry["aliases"]}
    return index | {spelling(name): name for name in known}


def find(kind: str, name: str) -> str | None:
    """Return the entry's own name, or None when nothing of ``kind`` is called ``name``."""
    if name in entries(kind):
        return name
    return _index(kind).get(spelling(name)) if len(name) <= LONGEST_NAME else None


def written(kind: str, name: str) -> bool:
    """Return whether ``name`` is an entry's name or alias as it is written, but for case."""
    own = find(kind, name)
    return own is not None and name.lower() in [
        own, *(alias.lower() for alias in entries(kind)[own]["aliases"])]


def require(kind: str, name: str, where: str = "") -> tuple[str, Entry]:
    """Return the entry's own name and the entry.

    Raises
    ------
    InputError
        When there is none, naming the ones that look alike.
    """
    found = find(kind, name)
    if found is None:
        word = SINGULAR[kind]
        raise InputError.of(
            f"known-{word.lower()}", f"there is no {word} called {shown(name)}",
            f"{did_you_mean(name, suggestions(kind, name))}"
            f"see `predict-time catalog {kind}`, or give a file", where)
    return found, entries(kind)[found]


def suggestions(kind: str, name: str) -> list[str]:
    """Return up to three names of ``kind`` that look like ``name``."""
    index = _index(kind)
    close = difflib.get_close_matches(spelling(name[:80]), index, n=3, cutoff=0.6)
    return list(dict.fromkeys(index[match] for match in close))


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return ``did you mean A or B? `` or nothing when there are no candidates."""
    listed = " or ".join(candidates)
    return f"did you mean {listed}? " if listed and listed != name else ""


def shown(text: str) -> str:
    """Return ``text`` quoted and not longer than a line."""
    return repr(text if len(text) <= 80 else text[:77] + "...")
